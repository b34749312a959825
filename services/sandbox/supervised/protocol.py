"""Frames of the supervisor's protocol (docs/reference/supervisor.md), and the numbers in them."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag

MAGIC, VERSION = 0xA5, 1
HEADER_BYTES, MAX_PAYLOAD, MAX_ID, NONCE_BYTES, NET_WINDOW = 20, 262_144, 64, 16, 131_072
RESYNC = bytes(HEADER_BYTES + MAX_PAYLOAD)
"""Ends whatever frame another controller left unfinished, and is nothing itself."""

_HEAD = struct.Struct("<BBBBIII")
_CRC = struct.Struct("<I")


class Message(IntEnum):
    """What a frame is."""

    HELLO = 1
    PING = 2
    EXEC = 3
    ATTACH = 4
    CREDIT = 5
    STDIN = 6
    SIGNAL = 7
    RESIZE = 8
    KILL = 9
    LIST = 10
    FORGET = 11
    SHUTDOWN = 12
    NET_SEND = 13
    NET_CREDIT = 14
    NET_CLOSE = 15
    FILE_STAT = 32
    FILE_LIST = 33
    FILE_READ = 34
    FILE_WRITE = 35
    FILE_ABORT = 36
    FILE_MKDIR = 37
    FILE_MOVE = 38
    FILE_REMOVE = 39
    HELLO_OK = 65
    PONG = 66
    EXEC_OK = 67
    OK = 68
    ERROR = 69
    ENTRY = 70
    FILE_STAT_OK = 96
    FILE_LIST_OK = 97
    FILE_READ_OK = 98
    FILE_WRITE_OK = 99
    DATA = 128
    EXIT = 129
    CLOSED = 130
    NET_OPEN = 131
    NET_BYTES = 132
    NET_TAKEN = 133
    NET_OVER = 134


class Flag(IntFlag):
    """Flags of a frame."""

    END = 1
    PARENTS = 2
    RECURSIVE = 4
    KEEP = 8


class ExecFlag(IntFlag):
    """Flags of EXEC."""

    PTY = 1
    SHELL = 2
    MERGE = 4
    STDIN = 8
    BACKGROUND = 16


class Stream(IntEnum):
    """Which output."""

    STDOUT = 1
    STDERR = 2


class State(IntEnum):
    """Where a command is."""

    RUNNING = 1
    EXITED = 2
    CLOSED = 3


class Reason(IntEnum):
    """What ended it."""

    NONE = 0
    EXITED = 1
    TIMEOUT = 2
    OOM = 3
    KILLED = 4
    LOST = 5
    OUTPUT_LIMIT = 6
    SPAWN_FAILED = 7


class EntryBit(IntFlag):
    """What else is to be said of a command."""

    OUTPUT_OPEN = 1
    OOM_SEEN = 2
    OUTPUT_DROPPED = 4


class Fault(IntEnum):
    """Why a request was refused."""

    BAD_FRAME = 1
    VERSION = 2
    BAD_REQUEST = 3
    STALE = 4
    NO_EXEC = 5
    MISMATCH = 6
    LIMIT = 7
    SPAWN = 8
    NOT_RUNNING = 9
    STILL_RUNNING = 10
    BUSY = 11
    FILE = 12
    HELLO_FIRST = 13


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `message` may be a number that this side does not know."""

    message: int
    tag: int
    exec: int
    payload: bytes
    flags: int = 0

    def encode(self) -> bytes:
        """Its bytes."""
        head = _HEAD.pack(MAGIC, VERSION, self.message, self.flags, self.tag, self.exec, len(self.payload))
        return head + _CRC.pack(zlib.crc32(self.payload, zlib.crc32(head))) + self.payload


class Reader:
    """Takes bytes as they come, gives frames. What is no frame is skipped byte by byte. Where not `synced`, the stream
    may begin anywhere (another controller was there), so until the first frame a length is believed only once its
    bytes and their check sum are there."""

    def __init__(self, *, synced: bool = True) -> None:
        self._held = bytearray()
        self._synced = synced

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now."""
        self._held += data
        at, keep = 0, -1
        while (at := self._held.find(MAGIC, at)) >= 0:
            frame, size = self._at(at)
            if frame is not None:
                self._synced, keep = True, -1
                yield frame
                at += size
            elif size and self._synced:
                keep = at
                break
            else:
                keep = at if size and keep < 0 else keep
                at += 1
        del self._held[: len(self._held) if at < 0 and keep < 0 else max(at, 0) if keep < 0 else keep]

    def _at(self, at: int) -> tuple[Frame | None, int]:
        """The frame here and its size; no frame and 1 where it is not whole yet; no frame and 0 where there is none."""
        if len(self._held) - at < HEADER_BYTES:
            return None, 1
        _, version, message, flags, tag, exec_, length = _HEAD.unpack_from(self._held, at)
        end = at + HEADER_BYTES + length
        if version != VERSION or length > MAX_PAYLOAD:
            return None, 0
        if len(self._held) < end:
            return None, 1
        payload = bytes(self._held[at + HEADER_BYTES : end])
        (crc,) = _CRC.unpack_from(self._held, at + 16)
        if crc != zlib.crc32(payload, zlib.crc32(self._held[at : at + 16])):
            return None, 0
        return Frame(message, tag, exec_, payload, flags), end - at
