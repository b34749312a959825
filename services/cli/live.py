"""Following tasks to their ends: events as lines, and on a terminal the live pictures below them."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from agents.contracts.event import Event
from agents.contracts.model import Delta
from agents.contracts.task import SLOT, TaskView
from services.cli.connect import Access
from services.cli.exits import StackStopped
from services.cli.fit import shares
from services.cli.styles import Line, dim
from services.cli.tree import Picture
from services.cli.words import age, awaited, lines_of, one_line
from services.client import ClientError, LonghaulApiError

POLL_S = 1.0
QUIET_S = 15.0
"""Where there is no live picture, a line after so much silence."""
STREAM_PATIENCE_S = 600.0
STOPPED_FOR_S = 5.0
"""A stack that was stopped for so long is not just being started anew."""


@dataclass(frozen=True)
class LinkDown:
    """The task could not be read; its state is not touched by that."""

    why: str


@dataclass(frozen=True)
class Ended:
    """The stream is at its end, or was given up for `fault`."""

    fault: Exception | None = None


Item = Event | Delta | TaskView | LinkDown | Ended


@dataclass(frozen=True)
class Watched:
    """A task to follow; where there are several, `label` stands before each of its lines."""

    task_id: str
    label: str = ""


Items = queue.Queue[tuple[Watched, Item]]


def follow(access: Access, tasks: Sequence[Watched], console: Console, after: int = 0) -> None:
    """Show tasks, one or several side by side, until the last event of each.

    Raises:
        ClientError: the API refuses, or stays away for `STREAM_PATIENCE_S`.
        StackStopped: the stack does not run any more.
    """
    items: Items = queue.Queue()
    done = threading.Event()
    for task in tasks:
        for work in (_read_stream(access, task, after, items, done), _poll(access, task, items, done)):
            threading.Thread(target=work, daemon=True).start()
    several = len(tasks) > 1
    pictures = {task: Picture(label=task.label if several else "") for task in tasks}
    try:
        with _screen(console, pictures) as screen:
            _show(items, pictures, screen)
    finally:
        done.set()


class Screen:
    """Prints lines; with `live`, above the pictures, which are drawn anew."""

    def __init__(self, console: Console, live: Live | None, pictures: dict[Watched, Picture]) -> None:
        self._console = console
        self._live = live
        self._pictures = pictures
        self._wide = max(len(picture.label) for picture in pictures.values())
        self._last = time.monotonic()

    def line(self, line: Line, picture: Picture) -> None:
        """One more line, about the task of a picture."""
        text = line.rich()
        if picture.label:
            text = Text.assemble((f"{picture.label:<{self._wide}}  ", "bold"), text)
        self._console.print(text, soft_wrap=self._live is None, highlight=False)
        self._last = time.monotonic()

    def link(self, state: str, picture: Picture) -> None:
        """Whether the task can be read; without a live picture that is a line where it changes."""
        if self._live is None and (state == "ok") != (picture.link == "ok"):
            self.line(dim(f"link {state}" + ("" if state == "ok" else "; it is tried again and again")), picture)
        picture.link = state

    def tick(self) -> None:
        """Let time pass: the pictures age, and silence is broken where there are none."""
        if self._live:
            self._live.update(Group(*self._drawn(datetime.now(UTC))), refresh=True)
        elif time.monotonic() - self._last > QUIET_S:
            for picture in self._pictures.values():
                for line in _still(picture.view) if picture.view and picture.link == "ok" else ():
                    self.line(line, picture)

    def _drawn(self, now: datetime) -> list[RenderableType]:
        """The pictures; together they leave a row of the terminal free, else it would scroll at each of them."""
        console, pictures, room = self._console, list(self._pictures.values()), max(2, self._console.height - 1)
        shown = pictures if len(pictures) <= room else pictures[: room - 1]
        left = len(pictures) - len(shown)
        rooms = shares([len(picture.rows(console, now)) for picture in shown], room - bool(left))
        drawn = [picture.render(console, now, rows) for picture, rows in zip(shown, rooms, strict=True)]
        return [*drawn, Text(f"… and {left} more", style="dim")] if left else drawn


def _show(items: Items, pictures: dict[Watched, Picture], screen: Screen) -> None:
    running = set(pictures)
    while running:
        try:
            task, item = items.get(timeout=0.2)
        except queue.Empty:
            screen.tick()
            continue
        if isinstance(item, Ended):
            if item.fault:
                raise item.fault
            running.discard(task)
        else:
            _take(item, pictures[task], screen)
        if items.empty():
            screen.tick()


def _take(item: Event | Delta | TaskView | LinkDown, picture: Picture, screen: Screen) -> None:
    match item:
        case Event():
            picture.told(item)
            for line in lines_of(item):
                screen.line(line, picture)
        case Delta():
            picture.heard(item)
        case TaskView():
            screen.link("ok", picture)
            picture.saw(item, datetime.now(UTC))
        case LinkDown():
            screen.link(f"down: {one_line(item.why, 60)}", picture)


@contextmanager
def _screen(console: Console, pictures: dict[Watched, Picture]) -> Iterator[Screen]:
    if not console.is_terminal or console.is_dumb_terminal:
        yield Screen(console, None, pictures)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Screen(console, live, pictures)


def _still(view: TaskView) -> Iterator[Line]:
    if view.queue_position:
        yield dim(f"{view.status.value} for {awaited(view.waiting_for or SLOT, view.queue_position)}")
    for agent in view.agents:
        if agent.state != "finished":
            yield dim(
                f"[{agent.step}] {agent.role.value}: {one_line(agent.activity)}, {age(agent.activity_at, view.as_of)}"
            )


def _read_stream(access: Access, task: Watched, after: int, items: Items, done: threading.Event) -> Callable[[], None]:
    def read() -> None:
        try:
            with access.quiet_client(patience_s=STREAM_PATIENCE_S) as client:
                for item in client.stream(task.task_id, after):
                    if done.is_set():
                        return
                    items.put((task, item))
        except Exception as fault:  # raised again by the main thread
            items.put((task, Ended(fault)))
        else:
            items.put((task, Ended()))

    return read


def _poll(access: Access, task: Watched, items: Items, done: threading.Event) -> Callable[[], None]:
    def poll() -> None:
        stopped_at: float | None = None
        with access.quiet_client(patience_s=1.0) as client:
            while not done.is_set():
                try:
                    view = client.get(task.task_id)
                except LonghaulApiError as fault:
                    items.put((task, LinkDown(fault.problem.title)))
                except ClientError:
                    items.put((task, LinkDown("no answer")))
                    stopped_at = (stopped_at or time.monotonic()) if access.stopped() else None
                    if stopped_at and time.monotonic() - stopped_at > STOPPED_FOR_S:
                        items.put((task, Ended(StackStopped(task.task_id))))
                        return
                else:
                    items.put((task, view))
                    if view.status.ended:
                        return
                done.wait(POLL_S)

    return poll
