"""The journal of commands, as it is on disk: what state is one in, and what did it print.

execs/DIGEST/intent.json   what was asked; made before anything starts
execs/DIGEST/kill          its end was asked for
the rest                   the keeper's (see keeper.py)
"""

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from agents.contracts.sandbox import OUTPUT_CAP_BYTES
from services.sandbox.records import Ended, Intent, Started, read, sync_folder, write


class Phase(StrEnum):
    """`idle`: journaled and not begun, may be started. `starting`: a keeper has it and has not said who it is."""

    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class Entry:
    """One journaled command. Every answer is read from disk; nothing is remembered here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def intent(self) -> Intent | None:
        """What was asked, or None: never journaled."""
        return read(self.folder / "intent.json", Intent)

    def record(self, intent: Intent) -> None:
        """Journal it, durably."""
        self.folder.mkdir(exist_ok=True)
        write(self.folder / "intent.json", intent)
        sync_folder(self.folder.parent)

    def ended(self) -> Ended | None:
        """How it ended, if that is written."""
        return read(self.folder / "exit.json", Ended)

    def started(self) -> Started | None:
        """Who keeps it. None where no keeper began, or one has only just begun to write."""
        try:
            return read(self.folder / "started.json", Started)
        except ValueError:
            return None

    def phase(self) -> Phase:
        """Where it is. A keeper that began and is gone without a record is recorded as lost here."""
        if (self.folder / "exit.json").exists():
            return Phase.ENDED
        with self._locked() as free:
            if not free:
                return Phase.RUNNING if self.started() is not None else Phase.STARTING
            if (self.folder / "exit.json").exists():
                return Phase.ENDED
            if not (self.folder / "started.json").exists():
                return Phase.IDLE
            self._lose()
            return Phase.ENDED

    def take_start(self) -> int | None:
        """The keeper's lock, held, where the command is journaled and has not begun; else None. Whoever inherits the
        descriptor holds the lock too, so it passes to the keeper without a moment in which nobody has it."""
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._may_begin():
                return fd
        except BlockingIOError:
            pass
        os.close(fd)
        return None

    def _may_begin(self) -> bool:
        """Under the lock: nothing began yet, or what began surely did not run (and is forgotten here)."""
        ended = self.ended()
        if ended is not None and ended.reason == "spawn_failed":
            for name in ("started.json", "exit.json"):
                (self.folder / name).unlink(missing_ok=True)
            sync_folder(self.folder)
            return True
        return ended is None and not (self.folder / "started.json").exists()

    def ask_end(self) -> None:
        """Ask the keeper, the one that lives or the one still to come, to end it."""
        (self.folder / "kill").touch()
        sync_folder(self.folder)
        with contextlib.suppress(OSError):  # no FIFO or no reader: whoever begins looks for the file first
            fd = os.open(self.folder / "control", os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(fd, b"k")
            finally:
                os.close(fd)

    def end_unstarted(self) -> None:
        """Record as killed what was journaled, asked to end and not begun: then nobody can begin it any more."""
        with self._locked() as free:
            if free and not (self.folder / "started.json").exists() and self.ended() is None:
                now = datetime.now(UTC).timestamp()
                write(self.folder / "exit.json", Ended(exit_code=137, reason="killed", started_at=now))

    def _lose(self) -> None:
        started = self.started()
        at = started.at if started is not None else datetime.now(UTC).timestamp()
        total = Kept(self.folder / "output.bin").total
        write(self.folder / "exit.json", Ended(exit_code=None, reason="lost", total_bytes=total, started_at=at))

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Try for the keeper's lock: True while we hold it, so no keeper lives and none can begin."""
        fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(fd)


class Kept:
    """What is kept of a command's output: see `keeper.Output` for the layout."""

    def __init__(self, path: Path, cap: int = OUTPUT_CAP_BYTES) -> None:
        self._half = cap // 2
        try:
            self._data = path.read_bytes()
        except FileNotFoundError:
            self._data = b""
        self.total: int = struct.unpack("<Q", self._data[:8])[0] if len(self._data) >= 8 else 0

    def text(self) -> tuple[str, bool]:
        """The text, with a line in the middle where something is left out, and whether that is so."""
        body, half = self._data[8:], self._half
        if self.total <= 2 * half:
            return body[: self.total].decode("utf-8", "replace"), False
        at = (self.total - half) % half
        ring = body[half:]
        tail = ring[at:] + ring[:at]
        left_out = self.total - 2 * half
        middle = f"\n[... {left_out} bytes left out ...]\n"
        return body[:half].decode("utf-8", "replace") + middle + tail.decode("utf-8", "replace"), True
