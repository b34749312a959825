"""Ranges and cursors over all their inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.contracts.errors import LonghaulError
from services.api import cursor
from services.api.ranges import NotSatisfiable, asked_span

numbers = st.integers(0, 40).map(str) | st.just("") | st.just("9" * 30)


@given(first=numbers, last=numbers, size=st.integers(0, 20))
def test_a_span_is_inside_or_refused(first: str, last: str, size: int) -> None:
    try:
        span = asked_span({"range": f"bytes={first}-{last}"}, size, '"e"')
    except NotSatisfiable:
        assert not first or int(first) >= size
        return
    assert 0 <= span.first <= span.last + 1 <= size
    if span.partial:
        assert span.length > 0


@given(text=st.text() | st.binary().map(lambda b: b.decode("latin-1")))
def test_a_cursor_is_read_or_refused(text: str) -> None:
    with pytest.raises(LonghaulError):
        cursor.read(text, "desc")
