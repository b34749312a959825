"""Run a command as another user who can reach the given paths: ``as_user.py UID PATH... -- COMMAND...``, by root.

In a mount namespace of its own, folders that keep that user out (a private home with the interpreter in it) are
replaced by empty ones that show only the given paths.
"""

import ctypes
import os
import sys
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    if libc.mount(source.encode(), target.encode(), kind, flags, data) != 0:
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}")


def barrier(path: Path) -> Path | None:
    """The first folder on the way to `path` that others may not pass."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)


def open_ways(paths: list[Path]) -> None:
    if libc.unshare(0x20000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", "/", None, 16384 | 1 << 18)
    hidden = [(path, os.open(path, os.O_PATH), closed) for path in paths if (closed := barrier(path)) is not None]
    for closed in {closed for _, _, closed in hidden}:
        mount("ways", str(closed), b"tmpfs", 0, b"mode=0755")
    for path, fd, _ in hidden:
        path.mkdir(parents=True, exist_ok=True)
        mount(f"/proc/self/fd/{fd}", str(path), None, 4096 | 16384)


def main() -> None:
    cut = sys.argv.index("--")
    uid, paths, command = int(sys.argv[1]), sys.argv[2:cut], sys.argv[cut + 1 :]
    open_ways([Path(path) for path in paths])
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
