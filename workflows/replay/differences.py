"""Where a played task differs from the recorded one, and what a person reads of it."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from agents.contracts.base import Count, Wire, excerpt
from agents.contracts.model import AssistantMessage, ChatMessage
from workflows.replay.transcript import Shown

DIFF_LINES = 60
"""A diff is cut behind so many lines."""
LINE_CHARS = 400
"""And each of its lines behind so many characters."""

Kind = Literal["request", "decision", "REPLAY_MISMATCH"]


class Difference(Wire):
    """One place where today's code does not do what was recorded. `layer` and `message` (from 0) say where a request
    differs first; `messages` how many of its messages do."""

    call: str
    kind: Kind
    what: str
    layer: str | None = None
    message: int | None = None
    messages: Count = 0
    then: str | None = None
    now: str | None = None
    diff: str = ""


class AgentReplay(Wire):
    """What came of one agent: the calls that were compared, where they differ, and where a decision differed so that
    nothing behind it can be compared (`stopped_at`)."""

    agent: str
    calls: Count
    differences: tuple[Difference, ...] = ()
    stopped_at: str | None = None


class Replay(Wire):
    """What came of a recording. `notes` are the recording's own, and what could not be compared."""

    version: int = 1
    name: str
    task_id: str
    status: str
    same: bool
    calls: Count
    agents: tuple[AgentReplay, ...]
    notes: tuple[str, ...] = ()


class Differs(Exception):
    """A decision differs: what comes next would be of another task. Ends the play of its agent."""

    def __init__(self, call: str, what: str, then: str, now: str) -> None:
        super().__init__(what)
        self.difference = Difference(call=call, kind="decision", what=what, then=excerpt(then), now=excerpt(now))


def compare(call: str, then: Shown, now: Shown, seen: set[str]) -> Difference | None:
    """How two requests differ, told at the first place that is not in `seen`, which grows by it: what differs once
    differs in every later request too."""
    places = [place for place in _places(then, now) if place.then != place.now]
    if not places:
        return None
    fresh = [place for place in places if place.then + "\x00" + place.now not in seen]
    seen.update(place.then + "\x00" + place.now for place in places)
    first = (fresh or places)[0]
    again = "" if fresh else ", as in a call before"
    return Difference(
        call=call,
        kind="request",
        what=f"{first.name} differs from line {_line(first)} on{again}",
        layer=first.layer,
        message=first.message,
        messages=len(places),
        diff=unified(first.then, first.now, first.name) if fresh else "",
    )


class _Place(NamedTuple):
    """A part of a request in both: the tools, or a message."""

    name: str
    layer: str
    message: int | None
    then: str
    now: str


def _line(place: _Place) -> int:
    """The first line in which a place differs. A message's text begins with a line that says whose words it is."""
    then, now = place.then.split("\n"), place.now.split("\n")
    alike = next((n for n, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), min(len(then), len(now)))
    return max(1, alike + (place.message is None))


def _places(then: Shown, now: Shown) -> Iterator[_Place]:
    yield _Place("the list of tools", "tools", None, then.tools, now.tools)
    for n in range(max(len(then.messages), len(now.messages))):
        a, b = then.messages[n : n + 1], now.messages[n : n + 1]
        layer = (now if b else then).layer(n)
        if a == b:
            continue
        yield _Place(f"message {n + 1} of {len(now.messages)} ({layer})", layer, n, text_of(a), text_of(b))


def text_of(messages: Sequence[ChatMessage]) -> str:
    """Messages as text."""
    return "".join(_text(message) for message in messages)


def unified(then: str, now: str, name: str) -> str:
    """A unified diff of few lines."""
    sides = (then.splitlines(), now.splitlines())
    diff = difflib.unified_diff(*sides, f"recorded {name}", f"today's {name}", lineterm="", n=2)
    lines = [line if len(line) <= LINE_CHARS else line[:LINE_CHARS] + "…" for line in diff]
    more = [f"… {len(lines) - DIFF_LINES} more lines"] if len(lines) > DIFF_LINES else []
    return "\n".join(lines[:DIFF_LINES] + more)


def _text(message: ChatMessage) -> str:
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    return "\n".join([f"[{message.role}]", message.content, *(f"{c.name} {c.arguments}" for c in calls)]) + "\n"
