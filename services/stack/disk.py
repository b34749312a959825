"""A full disk: not started on one, and after one the servers that do not recover by themselves are started anew."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from services.stack.errors import StackRefused
from services.storage import FLOOR_BYTES, Storage

VARIABLE = "LONGHAUL_STORAGE_FLOOR_BYTES"
USED_UP_BYTES = 32_000_000
"""With less than this, servers may have failed to write (one of them keeps a little for the superuser)."""
LOOK_S = 1.0


def floor_of(user: Mapping[str, str]) -> int:
    """The floor that the user set, or the usual one. Raises StackRefused where it is no number."""
    text = user.get(VARIABLE, "") or str(FLOOR_BYTES)
    if not text.isdecimal():
        raise StackRefused(f"{VARIABLE} must be a number of bytes, and is {text!r}.")
    return int(text)


def storage_at(root: Path, user: Mapping[str, str]) -> Storage:
    """The file system of a data directory, which need not be there yet."""
    existing = next(path for path in (root, *root.parents) if path.exists())
    return Storage(existing, floor_of(user))


def check_space(root: Path, user: Mapping[str, str]) -> None:
    """Refuse to start where too little is free: a database that cannot write its log does not come up.

    Raises:
        StackRefused: says how much is missing, and where.
    """
    storage = storage_at(root, user)
    if storage.full:
        raise StackRefused(
            f"Only {(storage.free_bytes or 0) / 1e6:,.0f} MB are free on the file system of {root}, and the stack "
            f"takes new work from {storage.floor_bytes / 1e6:,.0f} MB on; nothing was started.\n"
            f"Free some space there, choose another place (--data-dir PATH), or lower {VARIABLE}."
        )


async def watch(storage: Storage, say: Callable[[str], None], mend: Callable[[], Awaitable[None]]) -> None:
    """For ever: tell when the disk gets full and when space is back; `mend` once it was used up and is back."""
    told = used_up = False
    while True:
        free = storage.free_bytes
        used_up = used_up or (free is not None and free < min(USED_UP_BYTES, storage.floor_bytes))
        if storage.full and not told:
            told = True
            say(f"Disk full: {storage.place}. Nothing new is taken until then; nothing is lost.")
        elif not storage.full and told:
            told = False
            say("There is space on the disk again.")
            if used_up:
                used_up = False
                await mend()
        await asyncio.sleep(LOOK_S)
