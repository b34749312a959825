"""Questions to a person as the ledger keeps them: asked in the transaction that needs them, read before calls run."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.approval import Approval, ApprovalState, approval_id
from agents.contracts.event import ApprovalRequested
from services.store.ledger_events import Told
from services.store.ledger_step import Step
from services.store.spill import line
from services.store.tables import approvals, tool_calls
from workflows.records import CallRows, Held, Question


async def call_rows(conn: AsyncConnection, held: Held, turn: int) -> CallRows:
    """What is known of a turn's calls that have no result."""
    asked = select(approvals).where(*_turn(approvals, held, turn)).order_by(approvals.c.call_index, approvals.c.number)
    begun = select(tool_calls.c.i).where(
        *_turn(tool_calls, held, turn), tool_calls.c.begun_fence.is_not(None), tool_calls.c.ended_at.is_(None)
    )
    lost = select(tool_calls.c.i).where(
        *_turn(tool_calls, held, turn), tool_calls.c.lost_at.is_not(None), tool_calls.c.ended_at.is_(None)
    )
    found = [Approval.model_validate(dict(row)) for row in (await conn.execute(asked)).mappings()]
    return CallRows(
        tuple(found),
        frozenset((await conn.execute(begun)).scalars()),
        frozenset((await conn.execute(lost)).scalars()),
    )


def of_questions(step: Step, turn: int, questions: Sequence[Question]) -> list[Told]:
    """The events that tell of them."""
    return [
        Told(
            ApprovalRequested(
                approval_id=_id(step.held, turn, question),
                key=step.held.call_key(turn, question.i),
                arguments_sha256=question.arguments_sha256,
                kind=question.kind,
                tool=question.tool,
                arguments=question.arguments,
                expires_at=step.now + timedelta(seconds=question.expires_s),
            ),
            turn,
        )
        for question in questions
    ]


async def ask(step: Step, turn: int, questions: Sequence[Question]) -> None:
    """Store them, under the task's lock. A call that is asked about counts as not begun from here on."""
    if not questions:
        return
    await step.conn.execute(insert(approvals), [_row(step, turn, question) for question in questions])
    again = (
        update(tool_calls)
        .where(*_turn(tool_calls, step.held, turn), tool_calls.c.i.in_([question.i for question in questions]))
        .values(begun_fence=None)
    )
    await step.conn.execute(again)


def _row(step: Step, turn: int, question: Question) -> dict[str, Any]:
    held = step.held
    return {
        "id": _id(held, turn, question),
        "tenant_id": held.ref.tenant_id,
        "task_id": held.place.task_id,
        "agent_id": held.agent_id,
        "step_id": held.place.step,
        "round": held.ref.round,
        "turn": turn,
        "call_index": question.i,
        "call_key": held.call_key(turn, question.i),
        "number": question.number,
        "kind": question.kind,
        "tool": line(question.tool),
        "arguments": line(question.arguments),
        "arguments_sha256": question.arguments_sha256,
        "state": ApprovalState.PENDING.value,
        "requested_at": step.now,
        "expires_at": step.now + timedelta(seconds=question.expires_s),
    }


def _id(held: Held, turn: int, question: Question) -> str:
    return approval_id(held.call_key(turn, question.i), question.arguments_sha256, question.number)


def _turn(table: Any, held: Held, turn: int) -> tuple[Any, ...]:
    columns = table.c
    return (
        columns.tenant_id == held.ref.tenant_id,
        columns.agent_id == held.agent_id,
        columns.round == held.ref.round,
        columns.turn == turn,
    )
