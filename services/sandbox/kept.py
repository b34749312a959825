"""What a keeper writes: records that are whole or absent, the kept part of an output. The standard library only: a
keeper is started without anything else."""

import errno
import json
import os
import struct
from typing import Any

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def durable_json(path: str, value: dict[str, Any], *, exclusive: bool = False) -> None:
    """Write a record so that it is whole or absent after a crash. `exclusive`: FileExistsError where it exists."""
    temporary = path if exclusive else f"{path}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if exclusive else os.O_TRUNC)
    fd = os.open(temporary, flags, 0o600)
    try:
        left = memoryview(json.dumps(value).encode())
        while left:  # on a disk that is just full a part is written, and only the next write says so
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    except OSError:
        os.unlink(temporary)  # half a record would be taken for a beginning, or an end
        raise
    finally:
        os.close(fd)
    if not exclusive:
        os.rename(temporary, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Output:
    """The kept part of the output: the first `half` bytes and a ring of the last `half`, with the total in front."""

    def __init__(self, path: str, cap: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._half = cap // 2
        self.total = 0
        _pwrite(self._fd, struct.pack("<Q", 0), 0)

    def add(self, data: bytes) -> None:
        """Append; what leaves the ring is gone but counted. After an OSError the same piece may be added again."""
        view = memoryview(data)
        position = self.total
        if position < self._half:
            taken = view[: self._half - position]
            _pwrite(self._fd, taken, 8 + position)
            view, position = view[len(taken) :], position + len(taken)
        if len(view) > self._half:  # only its last part can survive
            position += len(view) - self._half
            view = view[-self._half :]
        while view:
            at = (position - self._half) % self._half
            taken = view[: self._half - at]
            _pwrite(self._fd, taken, 8 + self._half + at)
            view, position = view[len(taken) :], position + len(taken)
        _pwrite(self._fd, struct.pack("<Q", self.total + len(data)), 0)
        self.total += len(data)


def _pwrite(fd: int, data: bytes | memoryview, at: int) -> None:
    left = memoryview(data)
    while left:  # on a disk that is just full a part is written, and only the next write says so
        written = os.pwrite(fd, left, at)
        left, at = left[written:], at + written
