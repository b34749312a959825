"""Reading a stream of server-sent events: bytes into frames, frames into events in order, each once."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
from pydantic import TypeAdapter, ValidationError

from agents.contracts.event import TERMINAL_TYPES, Event
from agents.contracts.model import Delta

READ_S = 40.0
"""Silence after which a stream is dead: the server pings every 15 s."""
_LINE_END = re.compile(rb"\r\n|\n|\r")
_MAX_FRAME = 8 << 20
_EVENT = TypeAdapter(Event)


@dataclass(frozen=True)
class Frame:
    """One event of the protocol."""

    event: str
    data: bytes
    id: str | None


class Frames:
    """Cuts bytes into frames, wherever the network cut them."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._id: str | None = None
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that this piece completes."""
        self._rest += chunk
        if len(self._rest) > _MAX_FRAME:
            raise httpx.RemoteProtocolError("a line of the stream does not end")
        held = b""
        if self._rest.endswith(b"\r"):  # its \n may be in the next piece
            self._rest, held = self._rest[:-1], b"\r"
        *lines, self._rest = _LINE_END.split(self._rest)
        self._rest += held
        for line in lines:
            if line:
                self._field(line)
            elif (frame := self._complete()) is not None:
                yield frame

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"event":
                self._event = value.decode()
            case b"id":
                self._id = value.decode()
            case b"data":
                self._data.append(value)

    def _complete(self) -> Frame | None:
        frame = Frame(self._event or "message", b"\n".join(self._data), self._id) if self._data else None
        self._event, self._id, self._data = "", None, []
        return frame


class Tail:
    """Where a reader of one task is. `seq` is the last number that was passed on."""

    def __init__(self, task_id: str, after: int) -> None:
        self.path = f"/v1/tasks/{task_id}/events/stream"
        self.seq = after
        self.ended = False

    def request(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """The request that goes on where the last stream broke."""
        return http.build_request(
            "GET",
            self.path,
            headers={"Accept": "text/event-stream", "Last-Event-ID": str(self.seq)},
            timeout=httpx.Timeout(10.0, connect=5.0, read=READ_S),
        )

    def take(self, frame: Frame) -> Event | Delta | None:
        """What a frame brings, or None: a number seen before, or a kind that this version does not know.

        Raises:
            httpx.RemoteProtocolError: where a number is missing; the stream must be opened again.
        """
        if frame.event == "end":
            self.ended = True
            return None
        if frame.event == "delta":
            return _delta(frame.data)
        if frame.id is None or (seq := int(frame.id)) <= self.seq:
            return None
        if seq != self.seq + 1:
            raise httpx.RemoteProtocolError(f"event {self.seq + 1} is missing before {seq}")
        self.seq = seq
        self.ended = frame.event in TERMINAL_TYPES
        return _event(frame.data)


def _delta(data: bytes) -> Delta | None:
    try:
        return Delta.model_validate_json(data)
    except ValidationError:
        return None


def _event(data: bytes) -> Event | None:
    try:
        return _EVENT.validate_json(data)
    except ValidationError:
        return None
