"""Generated runs: what a recording named ``generate:N`` says. For tests and benchmarks of long runs, nothing else.

The planner plans one step, its executor runs a command that does nothing in each of N turns and hands in, the reviewer
approves. Every reply follows from the call's coordinate alone, and no command is the same as the one before.
"""

import re
from collections.abc import Mapping
from typing import Any

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.recording import CALL_PATTERN, Entry, Expect, RecordedReply, Seen, SpokenCall
from gpu.engine.match import plain, shown

_NAME = re.compile(r"generate:([1-9][0-9]{0,5})")
_PLAN = {
    "steps": [{"id": "long", "title": "Go on", "instructions": "Run commands.", "acceptance": ["every command ends"]}]
}
_SAID = Expect(tools=(), observations=(Seen(tool="shell", exit_code=0),))


def turns(recording: str | None) -> int | None:
    """How many turns a name asks for; None where it names an ordinary recording."""
    named = _NAME.fullmatch(recording or "")
    return int(named[1]) if named else None


def entry(count: int, call: str, body: Mapping[str, Any]) -> Entry:
    """The reply to a call.

    Raises:
        LonghaulError: ``REPLAY_NOT_RECORDED`` for no coordinate; ``REPLAY_MISMATCH`` where the last command failed.
    """
    if not re.match(CALL_PATTERN, call):
        raise LonghaulError(ErrorCode.REPLAY_NOT_RECORDED, f"{call!r} is no call's coordinate")
    role, _, round_, turn, _ = call.split("/")
    number = int(turn)
    if role == "executor" and round_ == "1" and 1 < number <= count + 1:
        _check(call, body)
    spoken = _spoken(role, number if round_ == "1" else count + 1, count)
    return Entry(call=call, expect=Expect(tools=()), reply=RecordedReply(tool_calls=(spoken,)))


def _spoken(role: str, turn: int, count: int) -> SpokenCall:
    if role == "planner":
        return SpokenCall(name="submit_plan", arguments=_PLAN)
    if role == "reviewer":
        return SpokenCall(name="submit_review", arguments={"verdict": "approve", "evidence": ["it was generated"]})
    if turn <= count:
        return SpokenCall(name="shell", arguments={"command": f"true {turn}"})
    return SpokenCall(name="finish_step", arguments={"summary": f"{count} commands ended"})


def _check(call: str, body: Mapping[str, Any]) -> None:
    got = Expect(tools=(), observations=shown(body).observations)
    if got != _SAID:
        detail = f"generated call {call}: the command before it went wrong. wanted: {plain(_SAID)} seen: {plain(got)}"
        raise LonghaulError(ErrorCode.REPLAY_MISMATCH, detail)
