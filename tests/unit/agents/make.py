"""Small makers of domain values, with everything that a test does not care about filled in."""

import json
from datetime import UTC, datetime
from typing import Any

from agents.contracts.errors import ErrorCode, ErrorInfo
from agents.contracts.ids import FINAL_STEP, PLAN_STEP, Place, Role
from agents.contracts.message import Mail, MailKind
from agents.contracts.model import BadReply, ModelReply, Usage
from agents.contracts.plan import Plan, PlanStep, Tier
from agents.contracts.sandbox import ExecState, ExecStatus
from agents.contracts.task import Limits
from agents.contracts.tool import ToolCall, ToolResult
from agents.contracts.trajectory import Attempt, Brief, Turn, TurnInputs

NOW = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
PROMPTS = {role: f"You are the {role.value}." for role in Role}


def call(name: str = "shell", arguments: dict[str, Any] | str | None = None, call_id: str = "call_0") -> ToolCall:
    raw = arguments if isinstance(arguments, str) else json.dumps({"command": "ls"} if arguments is None else arguments)
    return ToolCall(id=call_id, name=name, arguments=raw)


def reply(*calls: ToolCall, text: str = "", finish: str = "tool_calls") -> ModelReply:
    return ModelReply(text=text, tool_calls=calls, finish_reason=finish, usage=Usage(), model="m", tier="fast")


def result(content: str = "ok", tool: str = "shell", exit_code: int | None = 0, **more: Any) -> ToolResult:
    return ToolResult(tool=tool, content=content, exit_code=exit_code, **more)


def mail(seq: int, text: str = "do it", kind: MailKind = "steer", sender: str = "ada") -> Mail:
    return Mail(id=f"msg_{seq:08d}", seq=seq, kind=kind, sender=sender, text=text, sent_at=NOW)


def inputs(*messages: Mail, **more: Any) -> TurnInputs:
    given: dict[str, Any] = {"at": NOW, "mail": messages, "turns_left": 50} | more
    return TurnInputs(**given)


def bad(code: ErrorCode = ErrorCode.NO_TOOL_CALL, k: int = 1, answer: ModelReply | None = None) -> Attempt:
    return Attempt(k=k, reply=answer, bad=BadReply(code=code, detail="why."))


def done(
    n: int = 1, *calls: ToolCall, results: tuple[ToolResult, ...] | None = None, round_no: int = 1, **more: Any
) -> Turn:
    """A complete turn."""
    made = calls or (call(),)
    return Turn(
        round=round_no,
        turn=n,
        inputs=more.pop("inputs", inputs()),
        attempts=(*more.pop("before", ()), Attempt(k=9, reply=reply(*made))),
        results=tuple(result(tool=c.name) for c in made) if results is None else results,
    )


def failed(n: int = 1, *attempts: Attempt, code: ErrorCode = ErrorCode.EMPTY_REPLY) -> Turn:
    info = ErrorInfo(code=code, detail="why")
    return Turn(round=1, turn=n, inputs=inputs(), attempts=attempts or (bad(code),), failed=info)


def opened(n: int = 1, *attempts: Attempt, round_no: int = 1, **more: Any) -> Turn:
    """A turn that is still to be asked."""
    return Turn(round=round_no, turn=n, inputs=more.get("inputs", inputs()), attempts=attempts)


def step(step_id: str = "fix", **more: Any) -> PlanStep:
    return PlanStep(
        **({"id": step_id, "title": "Fix it", "instructions": "Mend.", "acceptance": ["tests pass"]} | more)
    )


def plan(*steps: PlanStep, **more: Any) -> Plan:
    return Plan(steps=list(steps) or [step()], **more)


def brief(role: Role = Role.EXECUTOR, tier: Tier = "auto", **more: Any) -> Brief:
    name = {Role.PLANNER: PLAN_STEP, Role.EXECUTOR: "fix", Role.REVIEWER: FINAL_STEP}[role]
    place = Place(task_id="task_00000001", role=role, step=name)
    given: dict[str, Any] = {"goal": "Make the tests pass.", "instruction_sha256": "0" * 64, "limits": Limits()} | more
    return Brief(tenant_id="default", place=place, tier=tier, **given)


def exec_status(output: str = "", **more: Any) -> ExecStatus:
    given: dict[str, Any] = {"state": ExecState.EXITED, "exit_code": 0, "reason": "exited"}
    given |= {"total_bytes": len(output.encode())} | more
    return ExecStatus(exec_id="e", started=True, output=output, started_at=NOW, duration_ms=7, **given)
