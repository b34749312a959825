"""Files of a sandbox through its supervisor: as its commands see them, beneath its roots."""

import itertools
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import IntEnum

from services.sandbox.beneath import faults
from services.sandbox.supervised.link import Link
from services.sandbox.supervised.messages import Refused, take_text, text
from services.sandbox.supervised.protocol import Fault, Flag, Frame, Message

PIECE = 128 << 10
_STAT = struct.Struct("<BIQQ")


class Kind(IntEnum):
    """What a name stands for."""

    FILE = 1
    FOLDER = 2
    LINK = 3
    OTHER = 4


@dataclass(frozen=True, slots=True)
class Stat:
    """A file's state; `mtime_ns` since 1970. Links are not followed."""

    name: str
    kind: Kind
    mode: int
    size: int
    mtime_ns: int


class Files:
    """Each call raises LonghaulError with its fault's code (``FILE_NOT_FOUND``, ``PATH_ESCAPE``, …), or LinkLost."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._uploads = itertools.count(1)

    async def stat(self, path: str, root: int = 0) -> Stat:
        """What is there."""
        answer = await self._ask(Message.FILE_STAT, path, root)
        return _stat(path, answer.payload, 0)

    async def list(self, path: str = "", root: int = 0) -> AsyncIterator[Stat]:
        """What a folder holds, in no order."""
        cookie = 0
        while True:
            answer = await self._ask(Message.FILE_LIST, path, root, struct.pack("<QI", cookie, 0))
            cookie, count = struct.unpack_from("<QI", answer.payload)
            at = 12
            for _ in range(count):
                name, at = take_text(answer.payload, at)
                yield _stat(name, answer.payload, at)
                at += _STAT.size
            if not cookie:
                return

    async def read(self, path: str, offset: int = 0, most: int | None = None, root: int = 0) -> bytes:
        """Bytes of a regular file, from `offset` on, to its end or `most` of them."""
        found = bytearray()
        while most is None or len(found) < most:
            size = PIECE if most is None else min(PIECE, most - len(found))
            answer = await self._ask(Message.FILE_READ, path, root, struct.pack("<QI", offset + len(found), size))
            if len(answer.payload) == 8:
                break
            found += answer.payload[8:]
        return bytes(found)

    async def write(self, path: str, data: bytes, *, mode: int = 0o644, parents: bool = False, root: int = 0) -> bool:
        """Put a file there, whole or not at all; True where there was none. A link of that name is replaced."""
        number = next(self._uploads) & 0xFFFFFFFF
        at, created = 0, False
        while True:
            piece = data[at : at + PIECE]
            flags = (Flag.PARENTS if parents else 0) | (Flag.END if at + len(piece) == len(data) else 0)
            more = struct.pack("<IIQ", number, mode, at) + piece
            answer = await self._ask(Message.FILE_WRITE, path, root, more, flags)
            at += len(piece)
            created = bool(answer.payload[8])
            if flags & Flag.END:
                return created

    async def mkdir(self, path: str, *, mode: int = 0o755, parents: bool = False, root: int = 0) -> None:
        """Make a folder; with `parents` the ones above it, and it may be there."""
        flags = Flag.PARENTS if parents else 0
        await self._ask(Message.FILE_MKDIR, path, root, struct.pack("<I", mode), flags)

    async def move(self, path: str, to: str, *, keep: bool = False, root: int = 0) -> None:
        """Give it another name; with `keep` not that of something else."""
        await self._ask(Message.FILE_MOVE, path, root, text(to), Flag.KEEP if keep else 0)

    async def remove(self, path: str, *, recursive: bool = False, root: int = 0) -> None:
        """Remove a file or an empty folder; with `recursive` a folder with all in it."""
        await self._ask(Message.FILE_REMOVE, path, root, b"", Flag.RECURSIVE if recursive else 0)

    async def _ask(self, message: Message, path: str, root: int, more: bytes = b"", flags: int = 0) -> Frame:
        with faults(path):
            try:
                return await self._link.ask(message, bytes([root]) + text(path) + more, flags=flags)
            except Refused as refused:
                if refused.fault == Fault.FILE:
                    raise OSError(refused.errno, refused.detail) from refused
                raise


def _stat(name: str, payload: bytes, at: int) -> Stat:
    kind, mode, size, mtime = _STAT.unpack_from(payload, at)
    return Stat(name, Kind(kind), mode, size, mtime)
