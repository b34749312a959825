"""Folders of chance for tests, and what a folder is: everything that a snapshot has to bring back."""

import os
import random
import stat
from pathlib import Path

NAMES = [
    b"a",
    b"b.txt",
    b"sp ace",
    b"new\nline",
    b"\xff\xfe",
    "ünïcode-名".encode(),
    b"-rf",
    b"*",
    b"x" * 200,
    b".git",
    b"...",
]
MODES = [0o644, 0o600, 0o755, 0o444, 0o666, 0o777]
FOLDER_MODES = [0o755, 0o700, 0o555, 0o777]
TARGETS = [b"a", b"../..", b"/etc/passwd", b"nowhere", b"\xff", b"."]
SIZES = [0, 1, 17, 4096, 70_000, 1 << 20, (1 << 20) + 1, 3_000_000]

State = tuple[object, ...]


def fill(top: Path, seed: int, *, entries: int = 25) -> None:
    """Make a folder's content from a number: files of all sizes, empty folders, links that lead out, odd names."""
    chance = random.Random(seed)
    folders = [os.fsencode(top)]
    late: list[tuple[bytes, int]] = []
    for _ in range(entries):
        path = chance.choice(folders) + b"/" + chance.choice(NAMES)
        if os.path.lexists(path):
            continue
        kind = chance.random()
        if kind < 0.25:
            os.mkdir(path)
            folders.append(path)
            late.append((path, chance.choice(FOLDER_MODES)))
        elif kind < 0.4:
            os.symlink(chance.choice(TARGETS), path)
        else:
            size = chance.choice(SIZES)
            data = chance.choice([chance.randbytes(size), (b"line of text\n" * (size // 13 + 1))[:size], bytes(size)])
            Path(os.fsdecode(path)).write_bytes(data)
            os.chmod(path, chance.choice(MODES))
        when = chance.randrange(1, 2_000_000_000) * 10**9 + chance.randrange(10**9)
        os.utime(path, ns=(when, when), follow_symlinks=False)
    for path, mode in reversed(late):
        when = chance.randrange(1, 2_000_000_000) * 10**9 + chance.randrange(10**9)
        os.utime(path, ns=(when, when))
        os.chmod(path, mode)


def state(top: Path) -> dict[bytes, State]:
    """Every entry below a folder by its path: kind, mode, time, content."""
    found: dict[bytes, State] = {}
    for at, folders, files in os.walk(os.fsencode(top)):
        for name in (*folders, *files):
            path = os.path.join(at, name)
            info = os.lstat(path)
            if stat.S_ISLNK(info.st_mode):
                content: object = os.readlink(path)
            else:
                content = Path(os.fsdecode(path)).read_bytes() if stat.S_ISREG(info.st_mode) else None
            mode = stat.S_IMODE(info.st_mode)
            found[path.removeprefix(os.fsencode(top) + b"/")] = (
                stat.S_IFMT(info.st_mode),
                mode,
                info.st_mtime_ns,
                content,
            )
    return found
