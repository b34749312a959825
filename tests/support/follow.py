"""Following a task in a test: everything its stream brought, bounded in time."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from agents.contracts.event import Event
from agents.contracts.model import Delta
from services.client import Client


class Followed:
    """A task's stream, read by a thread of its own from the first event on."""

    def __init__(self, client: Client, task_id: str) -> None:
        self.task_id = task_id
        self.events: list[Event] = []
        self.deltas: list[Delta] = []
        self._fault: BaseException | None = None
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(client,), daemon=True)
        self._thread.start()

    def _read(self, client: Client) -> None:
        try:
            for item in client.stream(self.task_id):
                with self._more:
                    if isinstance(item, Event):
                        self.events.append(item)
                    else:
                        self.deltas.append(item)
                    self._more.notify_all()
        except BaseException as fault:  # raised again by whoever waits
            self._fault = fault
        with self._more:
            self._more.notify_all()

    def to_end(self, seconds: float) -> "Followed":
        """Wait for the last event."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"not ended within {seconds} s; last: {self.events[-5:]}"
        if self._fault:
            raise self._fault
        return self

    def until(self, condition: Callable[[Event], bool], seconds: float, what: str) -> Event:
        """Wait for an event."""
        found: list[Event] = []

        def there() -> bool:
            found[:] = [event for event in self.events if condition(event)][:1]
            return bool(found) or not self._thread.is_alive()

        with self._more:
            self._more.wait_for(there, seconds)
        assert found, f"not within {seconds} s: {what}; last: {self.events[-5:]}"
        return found[0]

    def of(self, kind: str) -> Sequence[Any]:
        """The data of all events of a type, in order."""
        return [event.data for event in self.events if event.data.type == kind]
