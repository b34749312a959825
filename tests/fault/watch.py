"""One client of a task's stream, from submission to end, that hides nothing: every number exactly as it came."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import httpx

from agents.contracts.event import TERMINAL_TYPES, Event
from agents.contracts.model import Delta
from services.cli.connect import Access
from services.client.stream import READ_S, Frames

_PAUSE_S = 0.1


class Seen(NamedTuple):
    """An event and when it came (`time.monotonic`)."""

    event: Event
    came: float


class Watch:
    """Reads in a thread; a stream that breaks is opened again behind the last number, for as long as it takes."""

    def __init__(self, access: Access, task_id: str) -> None:
        self.task_id = task_id
        self.seen: list[Seen] = []
        self.deltas: list[Delta] = []
        self.connections = 0
        self._access = access
        self.ended = False
        self._leave = threading.Event()
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the events, doubles and all."""
        return [seen.event.seq for seen in self.seen]

    def wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for something that events or deltas bring about."""
        with self._more:
            there = self._more.wait_for(condition, seconds)
        assert there, f"not within {seconds:.0f} s: {what}; last: {[s.event.data for s in self.seen[-6:]]}"

    def to_end(self, seconds: float) -> None:
        """Wait for the task's last event."""
        self.wait(lambda: self.ended, seconds, "the end of the task")

    def first_after(self, at: datetime) -> Seen | None:
        """The first event that happened after a moment."""
        return next((seen for seen in self.seen if seen.event.at > at), None)

    def close(self) -> None:
        """Stop reading, at the latest with the next thing that comes."""
        self._leave.set()

    def _read(self) -> None:
        headers = {"Authorization": f"Bearer {self._access.key}"}
        timeout = httpx.Timeout(5.0, read=READ_S)
        with httpx.Client(base_url=self._access.url, headers=headers, timeout=timeout) as http:
            while not self.ended and not self._leave.is_set():
                with suppress(httpx.TransportError):  # the API was killed: that is what the tests are about
                    self._connect(http)
                self._leave.wait(0 if self.ended else _PAUSE_S)

    def _connect(self, http: httpx.Client) -> None:
        last = self.numbers[-1] if self.seen else 0
        path, frames = f"/v1/tasks/{self.task_id}/events/stream", Frames()
        with http.stream("GET", path, headers={"Last-Event-ID": str(last)}) as response:
            if response.status_code != 200:
                return
            self.connections += 1
            for chunk in response.iter_bytes():
                for frame in frames.feed(chunk):
                    self._take(frame.event, frame.data)
                if self._leave.is_set():
                    return

    def _take(self, kind: str, data: bytes) -> None:
        with self._more:
            if kind == "delta":
                self.deltas.append(Delta.model_validate_json(data))
            elif kind != "end":
                self.seen.append(Seen(Event.model_validate_json(data), time.monotonic()))
                self.ended = kind in TERMINAL_TYPES
            self._more.notify_all()
