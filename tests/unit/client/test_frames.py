"""Frames are the same wherever the network cuts the bytes."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.client.stream import Frame, Frames

STREAM = (
    'retry: 1000\n\nid: 1\nevent: task.created\ndata: {"ü": "\\n"}\n\n: ping\n\r\nid:2\r\ndata:a\r\ndata: b\r\n\r\n'
    "event: delta\rdata: €\r\revent: nothing\n\n"
).encode()
EXPECTED = [
    Frame("task.created", '{"ü": "\\n"}'.encode(), "1"),
    Frame("message", b"a\nb", "2"),
    Frame("delta", "€".encode(), None),
]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_cut_anywhere(cuts: list[int]) -> None:
    frames = Frames()
    found: list[Frame] = []
    places = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(places):
        found += frames.feed(STREAM[start:end])
    assert found == EXPECTED
