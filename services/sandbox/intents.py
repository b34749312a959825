"""What was asked is durable before it is started, at the price of one small write.

A record of its own for each command costs several flushes, and each of them waits for whatever else the file system has
to do. So the record is written without any, and a copy of it goes to a file that has its blocks already: of that one
only the data has to reach the disk. A killed process loses neither. After a power cut the copies that have no record
are written again when the runner starts.

DATA/intents.log: records of (length, check sum, generation, JSON). When it is full everything is flushed once, and it
begins anew with another generation; what lies behind its records is of the one before.
"""

import contextlib
import ctypes
import logging
import os
import secrets
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from agents.contracts.base import UtcTime, Wire
from services.sandbox.home import Home, load
from services.sandbox.journal import Entry
from services.sandbox.records import Intent
from services.storage import NO_SPACE

SIZE = 2 << 20
_HEAD = struct.Struct("<IIQ")
_LOG = logging.getLogger(__name__)


class Copy(Wire):
    """A copy of an intent: in which sandbox (of this id, made then), under which name."""

    sandbox: str
    made_at: UtcTime
    name: str
    intent: Intent


class Intents:
    """The file, for every sandbox under DATA/sandboxes. Used from threads."""

    def __init__(self, data_dir: Path, size: int = SIZE) -> None:
        self._path = data_dir / "intents.log"
        self._live = data_dir / "sandboxes"
        self._size = size
        self._lock = threading.Lock()
        self._fd = -1
        self._end = 0
        self._generation = 0

    def prepare(self) -> None:
        """At start, before any command: open it, write again what was lost, go on behind it."""
        try:
            self._fd = self._opened()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            _LOG.warning("no space for %s: commands are journaled without it", self._path)
            return
        again = 0
        for copy in self._copies():
            home = load(self._live / copy.sandbox)
            if home is not None and home.meta.created_at == copy.made_at:
                again += _again(Entry(home.exec_named(copy.name)), copy.intent)
        if again:
            _LOG.warning("%s commands were journaled again after a crash of the machine", again)

    def _opened(self) -> int:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(fd).st_size != self._size:
                os.ftruncate(fd, 0)
                for _ in range(self._size >> 16):
                    os.write(fd, bytes(1 << 16))
                os.fsync(fd)
        except OSError:
            os.close(fd)
            self._path.unlink()
            raise
        return fd

    def _copies(self) -> Iterator[Copy]:
        data = os.pread(self._fd, self._size, 0)
        self._end, self._generation = 0, secrets.randbits(64)
        first = True
        while self._end + _HEAD.size <= len(data):
            length, check, generation = _HEAD.unpack_from(data, self._end)
            body = data[self._end + _HEAD.size : self._end + _HEAD.size + length]
            if not length or check != _check(generation, body) or not (first or generation == self._generation):
                return
            self._generation, first = generation, False
            self._end += _HEAD.size + length
            with contextlib.suppress(ValidationError):  # of another version
                yield Copy.model_validate_json(body)

    def record(self, home: Home, entry: Entry, intent: Intent) -> None:
        """Journal a command, durably, or not at all.

        Raises:
            OSError: of a full disk.
        """
        try:
            self._record(home, entry, intent)
        except OSError:
            entry.remove()
            raise

    def _record(self, home: Home, entry: Entry, intent: Intent) -> None:
        copy = Copy(sandbox=home.meta.id, made_at=home.meta.created_at, name=entry.name, intent=intent)
        body = copy.model_dump_json().encode()
        if self._fd < 0 or len(body) > self._size // 2:
            entry.record(intent)
            return
        entry.note(intent)
        with self._lock:
            if self._end + _HEAD.size + len(body) > self._size:
                self._begin_anew()
            head = _HEAD.pack(len(body), _check(self._generation, body), self._generation)
            os.pwrite(self._fd, head + body, self._end)
            os.fdatasync(self._fd)
            self._end += len(head) + len(body)

    def _begin_anew(self) -> None:
        """Everything that it holds copies of is on disk from now on."""
        if ctypes.CDLL(None, use_errno=True).syncfs(self._fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._end, self._generation = 0, secrets.randbits(64)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def _check(generation: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<Q", generation)))


def _again(entry: Entry, intent: Intent) -> bool:
    if entry.intent() is not None:
        return False
    with contextlib.suppress(FileNotFoundError):
        entry.record(intent)
        return True
    return False
