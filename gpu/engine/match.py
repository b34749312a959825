"""Which recorded reply answers a request, or why none does. Pure; it never improvises."""

import json
from collections.abc import Mapping, Sequence
from operator import eq
from typing import Any

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.model import CALL_HEADER, INSTRUCTION_HEADER, RECORDING_HEADER
from agents.contracts.recording import Entry, Expect, Recording, expectation

SIDE_CHARS = 600
"""What a mismatch shows of either side."""
CALLS_NAMED = 10
"""Of the calls a recording has, where the one asked for is not among them."""


def choose(recordings: Sequence[Recording], headers: Mapping[str, str]) -> Recording:
    """The recording a request names, else the one of its instruction's digest.

    Raises:
        LonghaulError: ``REPLAY_NOT_RECORDED``; says which recordings there are.
    """
    name, digest = headers.get(RECORDING_HEADER), headers.get(INSTRUCTION_HEADER, "")
    found = [r for r in recordings if (r.name == name if name else r.instruction_sha256 == digest)]
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{r.name} ({r.instruction_sha256[:12]}…)" for r in recordings) or "none"
    if found:
        raise _not_recorded(
            f"{len(found)} recordings are of this instruction: {', '.join(r.name for r in found)}; name one of them"
        )
    wanted = f"no recording is named {name!r}" if name else f"no recording is of the instruction {digest[:12] or '?'}…"
    raise _not_recorded(f"{wanted}; recordings: {there}. The replay tier only plays what was recorded")


def find(recording: Recording, call: str) -> Entry:
    """The entry of a coordinate. A call that is asked again after a reply that was lost (a higher m{k} than any
    recorded) is given the last one recorded for that turn.

    Raises:
        LonghaulError: ``REPLAY_NOT_RECORDED``; says what is recorded.
    """
    stem, _, k = call.rpartition("/m")
    asked = int(k) if k.isdecimal() and len(k) < 10 else 0
    tries = {int(e.call.rpartition("/m")[2]): e for e in recording.entries if e.call.rpartition("/m")[0] == stem}
    earlier = [n for n in tries if n <= asked]
    if earlier:
        return tries[max(earlier)]
    wanted, there = call or f"(no {CALL_HEADER})", _there(recording, stem)
    raise _not_recorded(f"recording {recording.name!r} has no call {wanted!r}; it has {there}")


def shown(body: Mapping[str, Any]) -> Expect:
    """What a request shows: its tools by name and the observations since the last call; free text is not looked at."""
    tools = [str(t.get("function", {}).get("name")) for t in body.get("tools") or ()]
    messages = list(body.get("messages") or ())
    last = max((i for i, m in enumerate(messages) if m.get("tool_calls")), default=-1)
    return expectation(tools, [str(m.get("content")) for m in messages[last + 1 :] if m.get("role") == "tool"])


def check(recording: Recording, entry: Entry, body: Mapping[str, Any]) -> None:
    """Compare a request with what was recorded.

    Raises:
        LonghaulError: ``REPLAY_MISMATCH``; shows both, as far as they differ.
    """
    got = shown(body)
    expected = Expect(tools=tuple(sorted(entry.expect.tools)), observations=entry.expect.observations)
    if got != expected:
        what, fields, then, now = _difference(expected, got)
        raise LonghaulError(
            ErrorCode.REPLAY_MISMATCH,
            f"recording {recording.name!r}, call {entry.call}: the run differs from what was recorded in {what}. "
            f"recorded: {plain(then, fields)} this run: {plain(now, fields)}",
        )


def _difference(then: Expect, now: Expect) -> tuple[str, set[str], Expect, Expect]:
    """In what they differ first, the fields to show of it, and both from there on, without what is alike."""
    if then.tools != now.tools:
        return "the tools offered", {"tools", "observations"}, then, now
    pairs = zip(then.observations, now.observations, strict=False)
    alike = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(then.observations), len(now.observations)))
    name = f"observation {alike + 1} since the last call"
    return name, {"observations"}, _from(then, alike), _from(now, alike)


def _from(expect: Expect, first: int) -> Expect:
    return Expect(tools=(), observations=expect.observations[first:])


def plain(expect: Expect, fields: set[str] | None = None) -> str:
    """An expectation, or some fields of it, as one line of JSON of bounded length."""
    text = json.dumps(expect.model_dump(mode="json", exclude_none=True, include=fields), sort_keys=True)
    return text if len(text) <= SIDE_CHARS else text[:SIDE_CHARS] + f"… {len(text) - SIDE_CHARS} more characters"


def _there(recording: Recording, stem: str) -> str:
    """The calls of a recording, those that begin most like the one asked for first; of many, a few."""
    wanted = stem.split("/")
    like = sorted(recording.entries, key=lambda e: -sum(map(eq, e.call.split("/"), wanted)))
    more = f" and {len(like) - CALLS_NAMED} more" if len(like) > CALLS_NAMED else ""
    return ", ".join(e.call for e in like[:CALLS_NAMED]) + more


def _not_recorded(detail: str) -> LonghaulError:
    return LonghaulError(ErrorCode.REPLAY_NOT_RECORDED, detail)
