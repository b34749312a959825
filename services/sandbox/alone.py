"""A lock between set-ups that share a template, which says so where it has to be waited for."""

import fcntl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SILENT_S = 1.0


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold the lock; whoever waits for it longer than a moment is told what for."""
    with open(lock, "a") as held:
        deadline = time.monotonic() + SILENT_S
        while not _taken(held.fileno(), time.monotonic() > deadline):
            time.sleep(0.05)
        yield


def _taken(lock: int, late: bool) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not late:
            return False
        print("Waiting for another set-up of the template …", file=sys.stderr, flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return True
