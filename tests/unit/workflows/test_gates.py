"""What a gate says of a call, row by row, and what the turn loop makes of it on ports in memory."""

import json
from typing import Any

import pytest

from agents.contracts.approval import Approval, ApprovalKind, ApprovalState, arguments_digest
from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Role
from agents.contracts.model import ModelReply, Usage
from agents.contracts.run import BurstReason
from agents.contracts.tool import ToolCall, ToolResult
from agents.tools.parse import CheckedCall, check_reply
from tests.support.approvals import TOOLBOX
from tests.support.memory import BRIEF, NOW, InMemoryLedger
from tests.support.scripts import says
from tests.unit.workflows.test_turns import FINISH, World, read
from workflows.gates import Gates, again
from workflows.records import CallRows, Question

A, D, E, P = ApprovalState.APPROVED, ApprovalState.DENIED, ApprovalState.EXPIRED, ApprovalState.PENDING
ARGS = {"shell": {"command": "ls"}, "launch": {"name": "x"}, "order": {"name": "x"}, "read_file": {"path": "a"}}


def call(tool: str) -> CheckedCall:
    made = ToolCall(id="c", name=tool, arguments=json.dumps(ARGS[tool]))
    reply = ModelReply(tool_calls=(made,), finish_reason="tool_calls", usage=Usage(), model="m", tier="fast")
    return check_reply(Role.EXECUTOR, reply, toolbox=TOOLBOX).calls[0]


def approval(of: CheckedCall, state: ApprovalState, kind: ApprovalKind = "call", **more: Any) -> Approval:
    values: dict[str, Any] = {"id": "appr_1", "task_id": "t", "agent_id": "a", "step_id": "s", "round": 1, "turn": 1}
    values |= {"call_index": 0, "call_key": "k", "kind": kind, "tool": of.call.name, "arguments": "", "state": state}
    values |= {"arguments_sha256": arguments_digest(of.call.arguments), "requested_at": NOW, "expires_at": NOW}
    values["note"] = "because"
    return Approval.model_validate(values | more)


def said(way: Any) -> str:
    if isinstance(way, ToolResult):
        assert way.error_code is not None
        return way.error_code.value
    return f"ask {way.kind} {way.number}" if isinstance(way, Question) else str(way)


CASES: list[tuple[str, str | None, list[tuple[ApprovalState, ApprovalKind]], bool, str]] = [
    # tool, what the task says of it, the questions so far, begun before -> what follows
    ("shell", None, [], False, "run"),
    ("shell", "ask", [], False, "ask call 1"),
    ("shell", "ask", [(P, "call")], False, "wait"),
    ("shell", "ask", [(A, "call")], False, "run"),
    ("shell", "ask", [(D, "call")], False, "APPROVAL_DENIED"),
    ("shell", "ask", [(E, "call")], False, "APPROVAL_EXPIRED"),
    ("launch", None, [], False, "ask call 1"),
    ("launch", "allow", [], False, "run"),
    ("launch", "allow", [], True, "ask unknown_outcome 1"),
    ("launch", None, [(A, "call")], True, "ask unknown_outcome 2"),
    ("launch", None, [(A, "call"), (P, "unknown_outcome")], False, "wait"),
    ("launch", "allow", [(P, "unknown_outcome")], False, "wait"),
    ("launch", None, [(A, "call"), (A, "unknown_outcome")], False, "run"),
    ("launch", None, [(A, "call"), (A, "unknown_outcome")], True, "ask unknown_outcome 3"),
    ("launch", None, [(A, "call"), (D, "unknown_outcome")], False, "EXEC_OUTCOME_UNKNOWN"),
    ("launch", None, [(A, "call"), (E, "unknown_outcome")], False, "EXEC_OUTCOME_UNKNOWN"),
    ("order", None, [(A, "call")], True, "EXEC_OUTCOME_UNKNOWN"),  # told to the model: it can be undone
    ("order", "allow", [], True, "EXEC_OUTCOME_UNKNOWN"),
]


@pytest.mark.parametrize(("tool", "policy", "before", "begun", "way"), CASES)
def test_the_table(
    tool: str, policy: str | None, before: list[tuple[ApprovalState, ApprovalKind]], begun: bool, way: str
) -> None:
    brief = BRIEF.model_copy(update={"tools": {} if policy is None else {tool: policy}})
    checked = call(tool)
    rows = CallRows(tuple(approval(checked, *b) for b in before), frozenset({0} if begun else ()))
    found = Gates(brief, 60).way(checked, rows)
    assert said(found) == way
    if isinstance(found, ToolResult) and before:
        assert begun or "because" in found.content  # the model reads the person's note


def test_an_approval_is_not_reused_for_changed_arguments() -> None:
    gates = Gates(BRIEF.model_copy(update={"tools": {"shell": "ask"}}), 60)
    for changed in ({"arguments_sha256": "0" * 64}, {"call_index": 1}, {"tool": "order"}):
        rows = CallRows((approval(call("shell"), A, **changed),))
        assert said(gates.way(call("shell"), rows)).startswith("ask call"), changed


def test_a_run_that_a_person_asked_for_again_has_a_key_of_its_own() -> None:
    launch = call("launch")
    both = (approval(launch, A), approval(launch, A, "unknown_outcome"))
    assert [again(launch, CallRows(rows)) for rows in ((), both[:1], both)] == [0, 0, 1]


def test_a_task_says_how_long_a_person_has() -> None:
    limits = BRIEF.limits.model_copy(update={"approval_s": 5})
    own = Gates(BRIEF.model_copy(update={"limits": limits}), 60).questions((call("launch"),))
    usual = Gates(BRIEF, 60).questions((call("launch"), call("shell")))
    assert [q.expires_s for q in own + usual] == [5, 60]


@pytest.fixture
def world() -> World:
    """An executor whose task asks for the shell."""
    made = World([says(read("a"), ("shell", {"command": "ls"}), read("b")), FINISH])
    made.ledger = InMemoryLedger(BRIEF.model_copy(update={"tools": {"shell": "ask"}}))
    return made


def calls_of(world: World) -> list[str]:
    return [key.split("/")[-1] for key in world.bench.ran]


async def test_a_batch_stops_at_the_first_undecided_call_and_goes_on_from_there(world: World) -> None:
    """Write, ask, write: results before it are stored singly and never run again."""
    assert (await world.burst()).reason is BurstReason.NEEDS_APPROVAL
    assert calls_of(world) == ["c0"]
    assert world.ledger.log[-3:] == ["rows", "keep", "waits"]
    assert (await world.burst()).reason is BurstReason.NEEDS_APPROVAL  # nothing was decided: nothing happens
    assert calls_of(world) == ["c0"]
    world.ledger.decide(1, A)
    assert (await world.burst()).reason is BurstReason.FINISHED
    assert calls_of(world) == ["c0", "c1", "c2", "c0"]  # the last one hands in
    assert len(world.ledger.rows.approvals) == 1
    assert len(world.model.asked) == 2


@pytest.mark.parametrize(
    ("state", "code"), [(D, ErrorCode.APPROVAL_DENIED), (E, ErrorCode.APPROVAL_EXPIRED)], ids=["denied", "expired"]
)
async def test_three_outcomes(world: World, state: ApprovalState, code: ErrorCode) -> None:
    await world.burst()
    world.ledger.decide(1, state, "not on a Friday")
    assert (await world.burst()).reason is BurstReason.FINISHED
    assert calls_of(world) == ["c0", "c2", "c0"]
    result = world.ledger.turns[0].results[1]
    assert result is not None
    assert result.error_code is code
    assert "not on a Friday" in world.model.asked[1].messages[-2].content + world.model.asked[1].messages[-3].content


async def test_a_denied_tool_is_never_run_and_the_model_is_told(world: World) -> None:
    world.ledger = InMemoryLedger(BRIEF.model_copy(update={"tools": {"shell": "deny"}}))
    assert (await world.burst()).reason is BurstReason.FINISHED
    assert calls_of(world) == ["c0", "c2", "c0"]
    result = world.ledger.turns[0].results[1]
    assert result is not None
    assert result.error_code is ErrorCode.TOOL_NOT_ALLOWED
    assert world.ledger.rows == CallRows()


async def test_calls_that_nobody_is_asked_about_cost_nothing_more() -> None:
    world = World([says(read("a"), ("shell", {"command": "ls"})), FINISH])
    await world.burst()
    assert not {"rows", "start", "waits"} & set(world.ledger.log)
