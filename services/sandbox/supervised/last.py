"""Last words: what a supervisor that ended by itself (leash, linger, SIGTERM) had to tell, and nobody had taken yet.

It writes them into a file in the sandbox's folder, as frames: its instance, then of each command its output and entry.
"""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from services.sandbox.supervised.client import Finished, finished
from services.sandbox.supervised.launch import LAST
from services.sandbox.supervised.messages import Piece, take_entry, take_piece
from services.sandbox.supervised.protocol import Message, Reader


@dataclass(frozen=True, slots=True)
class LastWords:
    """`instance` (hex) is whose they are. One whose entry has no reason was still running when everything ended."""

    instance: str
    commands: tuple[Finished, ...]


def read_last(folder: Path) -> LastWords | None:
    """The last words in a sandbox's folder, as far as they were written; None where there are none."""
    try:
        data = (folder / LAST).read_bytes()
    except FileNotFoundError:
        return None
    pieces: defaultdict[int, list[Piece]] = defaultdict(list)
    instance, told = "", []
    for frame in Reader().feed(data):
        if frame.message == Message.HELLO_OK:
            instance = frame.payload.hex()
        elif frame.message == Message.DATA:
            pieces[frame.exec].append(take_piece(frame.payload, end=False))
        elif frame.message == Message.ENTRY:
            told.append(finished(take_entry(frame.payload, frame.exec), pieces.pop(frame.exec, [])))
    return LastWords(instance, tuple(told)) if instance else None


def forget_last(folder: Path) -> None:
    """They were taken."""
    (folder / LAST).unlink(missing_ok=True)
