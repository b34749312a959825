"""Generated runs: what a recording named ``generate:N`` or ``generate:NxW`` says. For tests and benchmarks of long and
wide runs, nothing else.

The planner plans one step, or W that may run side by side; the executor of each runs a command that does nothing in
each of N turns and hands in, the reviewer approves. Every reply follows from the call's coordinate alone, and no
command is the same as the one before.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.plan import MAX_STEPS
from agents.contracts.recording import CALL_PATTERN, Entry, Expect, RecordedReply, Seen, SpokenCall
from gpu.engine.match import plain, shown

_NAME = re.compile(r"generate:([1-9][0-9]{0,5})(?:x([1-9][0-9]?))?")
_STEP = {"title": "Go on", "instructions": "Run commands.", "acceptance": ["every command ends"]}
_SAID = Expect(tools=(), observations=(Seen(tool="shell", exit_code=0),))


class Shape(NamedTuple):
    """How many commands each step runs, and how many steps there are."""

    turns: int
    steps: int = 1


def shape(recording: str | None) -> Shape | None:
    """What a name asks for; None where it names an ordinary recording."""
    named = _NAME.fullmatch(recording or "")
    if named is None or int(named[2] or 1) > MAX_STEPS:
        return None
    return Shape(int(named[1]), int(named[2] or 1))


def entry(shape: Shape, call: str, body: Mapping[str, Any]) -> Entry:
    """The reply to a call.

    Raises:
        LonghaulError: ``REPLAY_NOT_RECORDED`` for no coordinate; ``REPLAY_MISMATCH`` where the last command failed.
    """
    if not re.match(CALL_PATTERN, call):
        raise LonghaulError(ErrorCode.REPLAY_NOT_RECORDED, f"{call!r} is no call's coordinate")
    role, _, round_, turn, _ = call.split("/")
    number = int(turn)
    if role == "executor" and round_ == "1" and 1 < number <= shape.turns + 1:
        _check(call, body)
    spoken = _spoken(role, number if round_ == "1" else shape.turns + 1, shape)
    return Entry(call=call, expect=Expect(tools=()), reply=RecordedReply(tool_calls=(spoken,)))


def _spoken(role: str, turn: int, shape: Shape) -> SpokenCall:
    if role == "planner":
        return SpokenCall(name="submit_plan", arguments={"steps": _steps(shape.steps)})
    if role == "reviewer":
        return SpokenCall(name="submit_review", arguments={"verdict": "approve", "evidence": ["it was generated"]})
    if turn <= shape.turns:
        return SpokenCall(name="shell", arguments={"command": f"true {turn}"})
    return SpokenCall(name="finish_step", arguments={"summary": f"{shape.turns} commands ended"})


def _steps(count: int) -> list[dict[str, Any]]:
    """One that holds the whole workspace, or some that each hold a folder."""
    if count == 1:
        return [_STEP | {"id": "long"}]
    return [_STEP | {"id": f"side-{n}", "resources": [f"path:side-{n}"]} for n in range(1, count + 1)]


def _check(call: str, body: Mapping[str, Any]) -> None:
    got = Expect(tools=(), observations=shown(body).observations)
    if got != _SAID:
        detail = f"generated call {call}: the command before it went wrong. wanted: {plain(_SAID)} seen: {plain(got)}"
        raise LonghaulError(ErrorCode.REPLAY_MISMATCH, detail)
