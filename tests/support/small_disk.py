"""A small file system of one's own, and what fills it."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.apart import Apart

CHUNK = 1 << 20


def run_on(place: Path, size_mb: int, argv: list[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Run a Python command (`argv` behind the interpreter) with a tmpfs of that size mounted at `place`, which must be
    there. Raises subprocess.SubprocessError where the machine allows no namespaces."""
    return subprocess.run(
        [sys.executable, *argv],
        preexec_fn=Apart().with_small_disk(place, size_mb),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=timeout_s,
        check=False,
    )


class Filler:
    """A file that takes the space of a file system until it is removed."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "filler"

    def leave(self, free_bytes: int) -> None:
        """Take everything but so much."""
        with self._path.open("ab", buffering=0) as file:
            while (take := shutil.disk_usage(self._path.parent).free - free_bytes) > 0:
                try:
                    file.write(bytes(min(take, CHUNK)))
                except OSError:
                    return

    def remove(self) -> None:
        """Give it back."""
        self._path.unlink(missing_ok=True)
