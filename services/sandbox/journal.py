"""The journal of commands, as it is on disk: what was asked, how it ended, what it printed.

execs/DIGEST/intent.json   what was asked, and under which supervisor; durable before anything is started (intents.py)
execs/DIGEST/denied.json   connections that were refused while it ran; not there where there were none
execs/DIGEST/output.bin    what is kept of the output (see `Kept`); not there where there was none
execs/DIGEST/exit.json     how it ended: whole or not there, the commit point

A process that is killed loses nothing of it. After a power cut an end that was not on disk yet counts as none, and the
command as lost. (The version before this one left other files there too; they are not looked at.)
"""

import contextlib
import os
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from agents.contracts.network import Denial
from agents.contracts.sandbox import OUTPUT_CAP_BYTES
from services.sandbox.records import Denied, Ended, Intent, Record, read, sync_folder

_TOTAL = struct.Struct("<Q")


class Entry:
    """One journaled command. Every answer is read from disk; nothing is remembered here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        """The command's name for the supervisor."""
        return self.folder.name

    def intent(self) -> Intent | None:
        """What was asked, or None: never journaled, or not wholly, and then it was not started."""
        return _sound(self.folder / "intent.json", Intent)

    def record(self, intent: Intent) -> None:
        """Journal it, durably."""
        self.note(intent, durably=True)
        sync_folder(self.folder)
        sync_folder(self.folder.parent)

    def note(self, intent: Intent, *, durably: bool = False) -> None:
        """Journal it as far as a killed process goes; it must not have been started."""
        self.folder.mkdir(exist_ok=True)
        fd = os.open(self.folder / "intent.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(fd, intent.model_dump_json().encode())
            if durably:
                os.fsync(fd)
        finally:
            os.close(fd)

    def ended(self) -> Ended | None:
        """How it ended, if that is written."""
        return _sound(self.folder / "exit.json", Ended)

    def finish(self, ended: Ended, output: bytes = b"") -> None:
        """Record its end. A repeat writes the same again.

        Raises:
            OSError: of a full disk; then there is no end yet.
        """
        if output:
            self._replace("output.bin", _TOTAL.pack(ended.total_bytes) + _as_ring(output, ended.total_bytes))
        self._replace("exit.json", ended.model_dump_json().encode())

    def _replace(self, name: str, data: bytes) -> None:
        temporary = self.folder / f"{name}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(fd, data)
        except OSError:
            temporary.unlink()
            raise
        finally:
            os.close(fd)
        temporary.rename(self.folder / name)

    def denied(self) -> tuple[Denial, ...]:
        """What was refused to it."""
        found = _sound(self.folder / "denied.json", Denied)
        return found.denied if found is not None else ()

    def deny(self, denied: tuple[Denial, ...]) -> None:
        """Note what was refused to it, all of it so far. Raises OSError."""
        self._replace("denied.json", Denied(denied=denied).model_dump_json().encode())

    def kept(self) -> "Kept":
        """What is kept of its output."""
        return Kept.read(self.folder / "output.bin")

    def remove(self) -> None:
        """Forget it: nothing of it was started."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.folder)


def _sound(path: Path, kind: type[Record]) -> Record | None:
    try:
        return read(path, kind)
    except ValidationError:
        return None


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:  # on a disk that is just full a part is written, and only the next write says so
        left = left[os.write(fd, left) :]


def _as_ring(output: bytes, total: int) -> bytes:
    """Head and tail as they lie in the file: the tail begins where a ring of that size would have it."""
    half = len(output) // 2
    if len(output) == total:
        return output
    at = (total - half) % half
    head, tail = output[:half], output[half:]
    return head + tail[half - at :] + tail[: half - at]


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a command's output: all of it, or its head and its tail, both of the same size.

    In the file: 8 bytes of total count, the head, then a ring that holds the tail.
    """

    total: int = 0
    data: bytes = b""

    @classmethod
    def read(cls, path: Path, cap: int = OUTPUT_CAP_BYTES) -> "Kept":
        """From the file."""
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            raw = b""
        if len(raw) < _TOTAL.size:
            return cls()
        (total,) = _TOTAL.unpack_from(raw)
        body, half = raw[_TOTAL.size :], cap // 2
        if total <= 2 * half:
            return cls(total, body[:total])
        ring, at = body[half:], (total - half) % half
        return cls(total, body[:half] + ring[at:] + ring[:at])

    def text(self) -> tuple[str, bool]:
        """The text, with a line in the middle where something is left out, and whether that is so."""
        if len(self.data) == self.total:
            return self.data.decode("utf-8", "replace"), False
        half = len(self.data) // 2
        middle = f"\n[... {self.total - 2 * half} bytes left out ...]\n"
        head, tail = self.data[:half], self.data[half:]
        return head.decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace"), True
