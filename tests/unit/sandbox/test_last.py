"""The last words of a supervisor: they may have been cut anywhere."""

import struct
from pathlib import Path

from services.sandbox.supervised.last import forget_last, read_last
from services.sandbox.supervised.launch import LAST
from services.sandbox.supervised.messages import text
from services.sandbox.supervised.protocol import Frame, Message, Reason, State, Stream

INSTANCE = bytes(range(16))
NUMBERS = struct.Struct("<BBBxiiIIQQQQQQQQQI")


def entry(name: str, handle: int, reason: Reason, said: int) -> bytes:
    numbers = NUMBERS.pack(State.CLOSED, reason, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, said, 0, 0, 0xFFFFFFFF)
    return Frame(Message.ENTRY, 0, handle, text(name) + numbers).encode()


def output(handle: int, data: bytes) -> bytes:
    return Frame(Message.DATA, 0, handle, struct.pack("<BQ", Stream.STDOUT, 0) + data).encode()


def test_what_is_whole_is_believed(tmp_path: Path) -> None:
    first = Frame(Message.HELLO_OK, 0, 0, INSTANCE).encode() + output(1, b"said") + entry("a", 1, Reason.EXITED, 4)
    whole = first + output(2, b"half") + entry("b", 2, Reason.NONE, 4)
    assert read_last(tmp_path) is None
    for size in range(len(whole) + 1):
        (tmp_path / LAST).write_bytes(whole[:size])
        words = read_last(tmp_path)
        told = [(one.entry.id, one.entry.reason, one.stdout) for one in words.commands] if words is not None else []
        expected = [("a", Reason.EXITED, b"said"), ("b", Reason.NONE, b"half")]
        assert told == expected[: 2 if size == len(whole) else int(size >= len(first))]
    assert words is not None
    assert words.instance == INSTANCE.hex()
    forget_last(tmp_path)
    forget_last(tmp_path)
    assert read_last(tmp_path) is None
