"""A small file system of one's own, in a mount namespace of one's own: no root needed, and nothing is left behind."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

_NEWNS, _NEWUSER = 0x20000, 0x10000000
_REC, _PRIVATE = 0x4000, 0x40000
CHUNK = 1 << 20


def run_on(place: Path, size_mb: int, argv: list[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
    """Run a Python command (`argv` behind the interpreter) with a tmpfs of that size mounted at `place`, which must be
    there. Raises OSError where the machine allows no namespaces."""
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def enter() -> None:
        check(libc.unshare(_NEWNS | (_NEWUSER if uid else 0)))
        if uid:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        check(libc.mount(b"none", b"/", None, _REC | _PRIVATE, None))
        check(libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, f"size={size_mb}m,mode=755".encode()))

    return subprocess.run(
        [sys.executable, *argv],
        preexec_fn=enter,
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
