"""From a model's reply to calls that may run: what is unusable, what is refused, what is sound."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Role
from agents.contracts.model import BadReply, ModelReply
from agents.contracts.plan import Plan, plan_problems
from agents.contracts.tool import Risk, ToolCall, ToolResult
from agents.tools.arguments import NotAnObject, Object, parse_object, typed, unique_ids
from agents.tools.base import Tool
from agents.tools.control import too_heavy
from agents.tools.faults import observe
from agents.tools.finish_step import FinishStep
from agents.tools.registry import STANDARD, Toolbox, signature
from agents.tools.submit_review import SubmitReview

MAX_CALLS = 16
"""Calls of one reply that are run; the rest are refused."""
ABSURD_CALLS = 64
"""A reply with more calls than this is noise and not used at all."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

FINISH: dict[str, tuple[ErrorCode, str]] = {
    "length": (ErrorCode.REPLY_TRUNCATED, "The reply was cut off at its length limit."),
    "max_tokens": (ErrorCode.REPLY_TRUNCATED, "The reply was cut off at its length limit."),
    "content_filter": (ErrorCode.REFUSED, "The reply was withheld by a content filter."),
    "refusal": (ErrorCode.REFUSED, "The model refused to answer."),
    "abort": (ErrorCode.REPLY_ABORTED, "The reply was cut off by the engine."),
    "error": (ErrorCode.REPLY_ABORTED, "The reply was cut off by the engine."),
}
"""Ways to finish that make a reply unusable whatever it holds: half a call may well parse."""


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """The `index`-th call of a reply. Either it is refused (`refusal` is its result and it is never run), or `tool` and
    `arguments` are there; `control` marks a sound control call, which is always alone."""

    index: int
    call: ToolCall
    tool: Tool[Any] | None = None
    arguments: BaseModel | None = None
    refusal: ToolResult | None = None
    control: bool = False


@dataclass(frozen=True, slots=True)
class CheckedReply:
    """Either `bad` (ask again) or at least one call."""

    bad: BadReply | None = None
    calls: tuple[CheckedCall, ...] = ()


def check_reply(
    role: Role, reply: ModelReply, has_failed_checks: bool = False, toolbox: Toolbox = STANDARD
) -> CheckedReply:
    """Judge a reply. `has_failed_checks`: a check of the task failed, so a reviewer may not approve."""
    bad = _unusable(reply)
    if bad is not None:
        return CheckedReply(bad=bad)
    calls = unique_ids(reply.tool_calls, set())
    try:
        objects = [_object(call, toolbox) for call in calls]
    except NotAnObject as fault:
        return CheckedReply(bad=BadReply(code=ErrorCode.UNPARSABLE_CALL, detail=str(fault)))
    judge = _Judge(role, toolbox, len(calls) == 1, has_failed_checks)
    return CheckedReply(calls=tuple(judge(n, *pair) for n, pair in enumerate(zip(calls, objects, strict=True))))


def _unusable(reply: ModelReply) -> BadReply | None:
    """What makes the reply as a whole useless, before its arguments are looked at."""
    if reply.finish_reason in FINISH:
        code, detail = FINISH[reply.finish_reason]
        return BadReply(code=code, detail=detail)
    if not reply.tool_calls:
        empty = not reply.text.strip()
        code = ErrorCode.EMPTY_REPLY if empty else ErrorCode.NO_TOOL_CALL
        return BadReply(
            code=code, detail="The reply was empty." if empty else "The reply was text without a tool call."
        )
    if len(reply.tool_calls) > ABSURD_CALLS:
        return BadReply(code=ErrorCode.UNPARSABLE_CALL, detail=f"The reply held {len(reply.tool_calls)} calls.")
    return None


def _object(call: ToolCall, toolbox: Toolbox) -> Object:
    if not _NAME.fullmatch(call.name):
        raise NotAnObject(f"{call.name[:80]!r} is not the name of a tool.")
    tool = toolbox.tools.get(call.name)
    if not call.arguments.strip() and tool is not None and _required(tool):
        raise NotAnObject(f"The arguments of {call.name} are empty; they are {signature(tool)}.")
    try:
        return parse_object(call.arguments)
    except NotAnObject as fault:
        raise NotAnObject(f"The arguments of {call.name} are not a JSON object: {str(fault)[:300]}.") from None


def _required(tool: Tool[Any]) -> bool:
    return any(field.is_required() for field in tool.arguments.model_fields.values())


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges the calls of one reply."""

    role: Role
    toolbox: Toolbox
    alone: bool
    failed_checks: bool

    def __call__(self, index: int, call: ToolCall, value: Object) -> CheckedCall:
        """A call that may run, or its refusal."""
        tool = self.toolbox.tools.get(call.name)
        refused = self._refusal(index, call, tool)
        if refused is not None or tool is None:
            return _refused(index, call, refused or self._not_offered(call.name, known=False))
        arguments = typed(tool.arguments, value)
        if isinstance(arguments, str):
            detail = f"{arguments}\n{call.name} takes {signature(tool)}."
            return _refused(index, call, (ErrorCode.INVALID_ARGUMENTS, detail))
        objection = _objection(arguments, self.failed_checks)
        if objection is not None:
            return _refused(index, call, objection)
        return CheckedCall(index, call, tool, arguments, control=tool.contract.control)

    def _refusal(self, index: int, call: ToolCall, tool: Tool[Any] | None) -> tuple[ErrorCode, str] | None:
        """What speaks against a call whatever its arguments are."""
        if tool is None or call.name not in self.toolbox.offered[self.role]:
            return self._not_offered(call.name, known=tool is not None)
        if tool.contract.control and not self.alone:
            return ErrorCode.CONTROL_CALL_NOT_ALONE, f"{call.name} must be the only call of a reply."
        if index >= MAX_CALLS:
            return (
                ErrorCode.TOOL_NOT_ALLOWED,
                f"At most {MAX_CALLS} calls of one reply are run; this was one more.",
            )
        return None

    def _not_offered(self, name: str, known: bool) -> tuple[ErrorCode, str]:
        offered = ", ".join(self.toolbox.offered[self.role])
        if known:
            return ErrorCode.TOOL_NOT_ALLOWED, f"{name} is not for the {self.role.value}. You have: {offered}."
        return ErrorCode.UNKNOWN_TOOL, f"There is no tool {name}. You have: {offered}."


def _refused(index: int, call: ToolCall, why: tuple[ErrorCode, str]) -> CheckedCall:
    return CheckedCall(index, call, refusal=observe(call.name, *why))


def _objection(arguments: BaseModel, failed_checks: bool) -> tuple[ErrorCode, str] | None:
    """What speaks against well-typed arguments."""
    if isinstance(arguments, Plan):
        problems = plan_problems(arguments)
        return (ErrorCode.INVALID_PLAN, "\n".join(f"- {p}" for p in problems)) if problems else None
    if isinstance(arguments, FinishStep | SubmitReview) and (heavy := too_heavy(arguments)) is not None:
        return ErrorCode.INVALID_ARGUMENTS, heavy
    if isinstance(arguments, SubmitReview) and arguments.verdict == "approve" and failed_checks:
        return ErrorCode.CHECKS_FAILED, "A check of the task failed in the clean copy; its output is in your brief."
    return None


def batches(calls: Sequence[CheckedCall]) -> list[list[CheckedCall]]:
    """What is to be run, in reply order: the members of one batch may overlap, batches follow each other. Only
    neighbours of risk `read` share one; refused and control calls are in none."""
    grouped: list[list[CheckedCall]] = []
    for call in calls:
        if call.tool is None or call.control:
            continue
        if grouped and _reads(call) and _reads(grouped[-1][-1]):
            grouped[-1].append(call)
        else:
            grouped.append([call])
    return grouped


def _reads(call: CheckedCall) -> bool:
    return call.tool is not None and call.tool.contract.risk is Risk.READ
