"""Looking at what runs in a sandbox, and waiting for it."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from services.sandbox.supervised.client import Supervisor
from tests.contract.supervisor.box import sh

_COUNT = itertools.count()


async def inside(client: Supervisor, words: str) -> int:
    """How many processes in the sandbox have a command line that begins like this."""
    look = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f 2>/dev/null; echo; done"
    done = await client.run(sh(f"look{next(_COUNT)}", look))
    return sum(line.startswith(words) for line in done.stdout.decode("utf-8", "replace").splitlines())


async def eventually(look: Callable[[], Awaitable[int]], wanted: int, seconds: float = 10) -> None:
    """Wait until it is so."""
    for _ in range(int(seconds / 0.02)):
        if await look() == wanted:
            return
        await asyncio.sleep(0.02)
    raise TimeoutError(f"it never was {wanted}")
