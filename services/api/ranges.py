"""The ``Range`` header: one range of bytes (RFC 9110). Of several, or of other units, the whole is sent."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from agents.contracts.errors import ErrorCode
from services.api.problems import Refusal

_ONE = re.compile(r"\s*bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class Span:
    """Which bytes to send: `first` up to and with `last`."""

    first: int
    last: int
    partial: bool

    @property
    def length(self) -> int:
        """How many."""
        return self.last - self.first + 1


class NotSatisfiable(Refusal):
    """``RANGE_NOT_SATISFIABLE``, with the header that tells the size."""

    def __init__(self, size: int) -> None:
        headers = {"Content-Range": f"bytes */{size}"}
        super().__init__(ErrorCode.RANGE_NOT_SATISFIABLE, f"there are only {size} bytes", headers=headers)


def asked_span(headers: Mapping[str, str], size: int, etag: str) -> Span:
    """What a request asks for of a body of `size` bytes.

    Raises:
        NotSatisfiable: where none of the bytes exist.
    """
    whole = Span(0, size - 1, partial=False)
    match = _ONE.fullmatch(headers.get("range", ""))
    if match is None or headers.get("if-range", etag) != etag:
        return whole
    first, last = match.groups()
    if not first and not last:
        return whole
    if not first:
        wanted = min(int(last), size)
        if wanted == 0:
            raise NotSatisfiable(size)
        return Span(size - wanted, size - 1, partial=True)
    if last and int(last) < int(first):
        return whole
    if int(first) >= size:
        raise NotSatisfiable(size)
    return Span(int(first), min(int(last), size - 1) if last else size - 1, partial=True)
