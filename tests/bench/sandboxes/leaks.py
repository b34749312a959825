"""What is left of sandboxes after their runner was killed and its launcher is gone."""

import asyncio
import time
from pathlib import Path

from tests.bench.sandboxes.measure import pids_with, rate
from tests.bench.sandboxes.runners import first_command, runner
from tests.bench.sandboxes.size import Size
from tests.bench.turns.report import figure, progress, target
from tests.support.engine import Engine

WITHIN_S = 60.0
WIDTH = 4


async def bench(engine: Engine, template: Path, size: Size) -> None:
    """SIGKILL, end of the launcher's pipe, and a look at processes until none is left."""
    progress("leaks")
    async with runner(template, 4) as (process, client):

        async def one(_: int) -> None:
            await first_command(client)

        await rate(size.starts, WIDTH, one)
        mark = str(process.data)
        process.kill()
        process.hang_up()
        begun = time.monotonic()
        left = await asyncio.to_thread(_none_left, mark, begun + WITHIN_S)
        seconds = time.monotonic() - begun
    figure("sandbox.leaks_60s", len(left), "processes")
    target(f"nothing left after {WITHIN_S:.0f} s", not left)
    print(f"  the last one ended after {seconds:.2f} s")


def _none_left(mark: str, until: float) -> list[int]:
    while (left := _left(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _left(mark: str) -> list[int]:
    """Supervisors of this runner: their sockets' folder is their working place's, so they are found by their mounts."""
    found = []
    for pid in pids_with("--outside-pid-ns"):
        try:
            if (
                mark in Path(f"/proc/{pid}/mountinfo").read_text()
                or mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
            ):
                found.append(pid)
        except OSError:
            continue
    return found
