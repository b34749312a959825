"""The log files of the stack: the end of one for a message, and a cap on their size."""

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 50_000_000


def tail(path: Path, lines: int = 8) -> str:
    """The last lines of a log, indented; empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8_192))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return last_lines(text, lines)


def last_lines(text: str, lines: int = 8) -> str:
    """The end of a text, indented."""
    return "\n".join("    " + line[:300] for line in text.splitlines()[-lines:])


def rotate(directory: Path, max_bytes: int = MAX_BYTES) -> None:
    """Keep one old copy of each log that grew too long, or none where the disk is full. Writers append, so truncating
    under them is safe."""
    for path in directory.glob("*.log"):
        if path.stat().st_size > max_bytes:
            old = path.with_suffix(".log.1")
            try:
                shutil.copyfile(path, old)
            except OSError:
                with suppress(OSError):
                    old.unlink()
            os.truncate(path, 0)


async def keep_small(directory: Path) -> None:
    """Rotate once a minute, for ever."""
    while True:
        with suppress(OSError):
            rotate(directory)
        await asyncio.sleep(60)
