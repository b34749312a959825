"""Whether an agent goes round in circles: told once, then stopped.

A turn is like another when it made the same calls and they came to the same. Times, addresses and temporary names in
results do not count: they differ each time a test suite fails in the same way. New mail or a new round starts afresh.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from agents.contracts.tool import ToolCall, ToolResult
from agents.contracts.trajectory import Turn
from agents.tools.arguments import parse_object

Verdict = Literal["nudge", "stop"]

_VOLATILE = re.compile(
    r"0x[0-9a-fA-F]{4,}"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?"
    r"|\b\d+(?:\.\d+)?\s?(?:ns|µs|us|ms|s|secs?|seconds?|minutes?)\b"
    r"|/tmp/[\w.-]+"
)
_VOLATILE_CHARS = 200
"""Two results whose lengths differ by more do not differ by a few clock readings."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to be stuck: how many turns of it, counted back from the last, are told and how many are the end."""

    kind: str
    count: Callable[[Sequence[Turn]], int]
    nudge_at: int
    stop_at: int
    words: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """What was found: by which rule, for how many turns, and what follows."""

    rule: Rule
    turns: int
    verdict: Verdict


def alike(one: Turn, other: Turn) -> bool:
    """Whether two turns made the same calls (whatever way their arguments are written) with the same outcome."""
    a, b = one.reply, other.reply
    if a is None or b is None or len(a.tool_calls) != len(b.tool_calls):
        return False
    calls = zip(a.tool_calls, b.tool_calls, strict=True)
    if not all(_same_call(x, y) for x, y in calls) or len(one.results) != len(other.results):
        return False
    return all(_same_result(x, y) for x, y in zip(one.results, other.results, strict=True))


def _same_call(a: ToolCall, b: ToolCall) -> bool:
    if a.name != b.name:
        return False
    return a.arguments == b.arguments or parse_object(a.arguments) == parse_object(b.arguments)


def _same_result(a: ToolResult | None, b: ToolResult | None) -> bool:
    """The cheap comparisons first: this runs every turn, and nearly always the answer is no."""
    if a is None or b is None or a.exit_code != b.exit_code or a.error_code != b.error_code:
        return False
    if a.content == b.content:
        return True
    near = abs(len(a.content) - len(b.content)) <= _VOLATILE_CHARS
    return near and _VOLATILE.sub("~", a.content) == _VOLATILE.sub("~", b.content)


def count_failed(turns: Sequence[Turn]) -> int:
    """Turns at the end that brought no usable reply."""
    return _run(turns, lambda i: turns[i].failed is not None)


def count_same(turns: Sequence[Turn]) -> int:
    """Turns at the end that are like the last one."""
    return _run(turns, lambda i: i == len(turns) - 1 or alike(turns[i], turns[i + 1]))


def count_error(turns: Sequence[Turn]) -> int:
    """As `count_same`, where every call came to an error."""
    if not turns or not turns[-1].results or not all(r and r.error_code for r in turns[-1].results):
        return 0
    return count_same(turns)


def count_alternating(turns: Sequence[Turn]) -> int:
    """Turns at the end that take turns between two different doings."""
    if len(turns) < 3 or not alike(turns[-1], turns[-3]) or alike(turns[-1], turns[-2]):
        return 0
    return _run(turns, lambda i: i >= len(turns) - 2 or alike(turns[i], turns[i + 2]))


def _run(turns: Sequence[Turn], holds: Callable[[int], bool]) -> int:
    """How many turns, from the last backwards, `holds` is true of; not further back than any rule looks."""
    count = 0
    for i in range(len(turns) - 1, max(len(turns) - FARTHEST, 0) - 1, -1):
        if not holds(i):
            break
        count += 1
    return count


RULES: tuple[Rule, ...] = (
    Rule("failed", count_failed, 2, 3, "Your last {n} turns brought no usable reply. Make one simple tool call."),
    Rule(
        "error",
        count_error,
        3,
        5,
        "The same call has failed in the same way {n} times. It will not work: read the error, look at what is really"
        " there, and do something different.",
    ),
    Rule(
        "same",
        count_same,
        4,
        6,
        "You have made the same call with the same result {n} times. It will not change by itself: use what it showed,"
        " or try another way.",
    ),
    Rule(
        "alternating",
        count_alternating,
        6,
        8,
        "You have gone back and forth between the same two actions for {n} turns. Stop, say what you know, and take a"
        " different approach.",
    ),
)
"""Looked through in this order; a stop of any goes before a nudge of another."""

FARTHEST = 8
"""No rule looks further back than this many turns."""


def find(turns: Sequence[Turn]) -> Stuck | None:
    """The rule that holds at the end of these complete turns."""
    recent = _since_news(turns)
    found = [Stuck(rule, n, _judge(rule, n)) for rule in RULES if (n := rule.count(recent)) >= rule.nudge_at]
    return min(found, key=lambda stuck: stuck.verdict != "stop", default=None)


def _judge(rule: Rule, turns: int) -> Verdict:
    return "stop" if turns >= rule.stop_at else "nudge"


def verdict(turns: Sequence[Turn]) -> Verdict | None:
    """What follows from the last complete turns: nothing, a word to the model (`context` puts it into the prompt), or
    the end with ``NO_PROGRESS``."""
    stuck = find(turns)
    return stuck.verdict if stuck else None


def nudge(turns: Sequence[Turn]) -> str | None:
    """What the model is told, if anything."""
    stuck = find(turns)
    return stuck.rule.words.format(n=stuck.turns) if stuck else None


def _since_news(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The last turns, as far back as any rule looks, the last new mail, or the beginning of the round."""
    start = max(len(turns) - FARTHEST, 0)
    for i in range(len(turns) - 1, start - 1, -1):
        if turns[i].round != turns[-1].round:
            return turns[i + 1 :]
        if turns[i].inputs.mail:
            return turns[i:]
    return turns[start:]
