"""Text for a model's eyes: control characters out, a cap on bytes with both ends kept."""

import re
from typing import NamedTuple

from agents.tools.base import OBSERVATION_CAP_BYTES

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_HEAD_SHARE = 0.4


class Capped(NamedTuple):
    """A text within its cap. `left_out` counts the bytes between head and tail; 0 when all is there."""

    text: str
    left_out: int


def clean(text: str) -> str:
    """Without terminal colours and redrawn progress lines; other control characters become U+FFFD."""
    if not _CONTROL.search(text):
        return text
    text = _ANSI.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(_last_drawn(line) for line in text.split("\n"))
    return _CONTROL.sub("\ufffd", text)


def _last_drawn(line: str) -> str:
    """What a terminal would still show of a line that was drawn over with carriage returns."""
    return next((piece for piece in reversed(line.split("\r")) if piece.strip()), "")


def cap(text: str, limit: int = OBSERVATION_CAP_BYTES, total_bytes: int | None = None) -> Capped:
    """At most `limit` bytes of UTF-8, and a line that says how much is missing, cut at line ends where one is near.

    `total_bytes` is the size of the whole where `text` is already a part of it.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return Capped(text, 0)
    head, tail = _head(data, int(limit * _HEAD_SHARE)), _tail(data, limit - int(limit * _HEAD_SHARE) - 100)
    left_out = max(total_bytes or 0, len(data)) - len(head) - len(tail)
    line = f"\n… {left_out} bytes left out here …\n"
    return Capped(head.decode("utf-8", "ignore").rstrip("\n") + line + tail.decode("utf-8", "ignore"), left_out)


def _head(data: bytes, size: int) -> bytes:
    end = data.rfind(b"\n", size // 2, size)
    return data[: end + 1] if end >= 0 else data[:size]


def _tail(data: bytes, size: int) -> bytes:
    start = data.find(b"\n", len(data) - size, len(data) - size // 2)
    return data[start + 1 :] if start >= 0 else data[-size:]


def printable(text: str) -> str:
    """The text with control characters as U+FFFD, otherwise as it is: for text that a reader may copy back."""
    return _CONTROL.sub("\ufffd", text) if _CONTROL.search(text) else text
