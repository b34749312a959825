"""Following a task to its end: events as lines, and on a terminal the live picture below them."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console
from rich.live import Live

from agents.contracts.event import Event
from agents.contracts.model import Delta
from agents.contracts.task import TaskView
from services.cli.connect import Access
from services.cli.styles import Line, dim
from services.cli.tree import Picture
from services.cli.words import age, lines_of, one_line
from services.client import ClientError, LonghaulApiError

POLL_S = 1.0
QUIET_S = 15.0
"""Where there is no live picture, a line after so much silence."""
STREAM_PATIENCE_S = 600.0


@dataclass(frozen=True)
class LinkDown:
    """The task could not be read; its state is not touched by that."""

    why: str


@dataclass(frozen=True)
class Ended:
    """The stream is at its end, or was given up for `fault`."""

    fault: Exception | None = None


Item = Event | Delta | TaskView | LinkDown | Ended


def follow(access: Access, task_id: str, console: Console, after: int = 0) -> None:
    """Show a task until its last event.

    Raises:
        ClientError: the API refuses, or stays away for `STREAM_PATIENCE_S`.
    """
    items: queue.Queue[Item] = queue.Queue()
    done = threading.Event()
    for work in (_read_stream(access, task_id, after, items, done), _poll(access, task_id, items, done)):
        threading.Thread(target=work, daemon=True).start()
    picture = Picture()
    try:
        with _screen(console, picture) as screen:
            _show(items, picture, screen)
    finally:
        done.set()


class Screen:
    """Prints lines; with `live`, above a picture that is drawn anew."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._last = time.monotonic()

    def line(self, line: Line) -> None:
        """One more line."""
        self._console.print(line.rich(), soft_wrap=self._live is None, highlight=False)
        self._last = time.monotonic()

    def tick(self, picture: Picture) -> None:
        """Let time pass: the picture ages, and silence is broken where there is none."""
        if self._live:
            self._live.update(picture.render(self._console, datetime.now(UTC)), refresh=True)
        elif time.monotonic() - self._last > QUIET_S and picture.view:
            for line in _still(picture.view, picture.link):
                self.line(line)


def _show(items: "queue.Queue[Item]", picture: Picture, screen: Screen) -> None:
    while True:
        try:
            item = items.get(timeout=0.2)
        except queue.Empty:
            screen.tick(picture)
            continue
        match item:
            case Event():
                picture.told(item)
                for line in lines_of(item):
                    screen.line(line)
            case Delta():
                picture.heard(item)
            case TaskView():
                picture.saw(item, datetime.now(UTC))
            case LinkDown():
                picture.link = f"down: {one_line(item.why, 60)}"
            case Ended(fault):
                if fault:
                    raise fault
                return
        if items.empty():
            screen.tick(picture)


@contextmanager
def _screen(console: Console, picture: Picture) -> Iterator[Screen]:
    if not console.is_terminal or console.is_dumb_terminal:
        yield Screen(console, None)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Screen(console, live)


def _still(view: TaskView, link: str) -> Iterator[Line]:
    if link != "ok":
        yield dim(f"link {link}")
    for agent in view.agents:
        if agent.state != "finished":
            yield dim(
                f"[{agent.step}] {agent.role.value}: {one_line(agent.activity)}, {age(agent.activity_at, view.as_of)}"
            )


def _read_stream(
    access: Access, task_id: str, after: int, items: "queue.Queue[Item]", done: threading.Event
) -> Callable[[], None]:
    def read() -> None:
        try:
            with access.client(patience_s=STREAM_PATIENCE_S) as client:
                for item in client.stream(task_id, after):
                    if done.is_set():
                        return
                    items.put(item)
        except Exception as fault:  # raised again by the main thread
            items.put(Ended(fault))
        else:
            items.put(Ended())

    return read


def _poll(access: Access, task_id: str, items: "queue.Queue[Item]", done: threading.Event) -> Callable[[], None]:
    def poll() -> None:
        with access.client(patience_s=1.0) as client:
            while not done.is_set():
                try:
                    items.put(client.get(task_id))
                except LonghaulApiError as fault:
                    items.put(LinkDown(fault.problem.title))
                except ClientError:
                    items.put(LinkDown("no answer"))
                done.wait(POLL_S)

    return poll
