"""Approvals: read for the API, decided once, expired. The ledger writes the requests, in the transaction of the reply.

Whatever changes an approval holds its task's row lock, so approvals come behind it in the order of locks, as events do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.approval import Approval, ApprovalDecision, ApprovalState
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.event import ApprovalDecided, ApprovalExpired
from services.store import events
from services.store.database import Database
from services.store.tables import approvals, tasks
from services.store.task_views import Position

OUTCOME = {"approve": ApprovalState.APPROVED, "deny": ApprovalState.DENIED}
_BATCH = 200


@dataclass(frozen=True)
class Decided:
    """An approval after a decision; `control_seq` is None where the same had been decided before."""

    approval: Approval
    control_seq: int | None


async def get(conn: AsyncConnection, tenant_id: str, approval_id: str) -> Approval:
    """One approval.

    Raises:
        LonghaulError: ``NOT_FOUND``.
    """
    query = select(approvals).where(approvals.c.tenant_id == tenant_id, approvals.c.id == approval_id)
    row = (await conn.execute(query)).mappings().first()
    if row is None:
        raise LonghaulError(ErrorCode.NOT_FOUND, f"there is no approval {approval_id}")
    return Approval.model_validate(dict(row))


async def page(
    conn: AsyncConnection,
    tenant_id: str,
    *,
    limit: int,
    behind: Position | None = None,
    newest_first: bool = True,
    states: Sequence[ApprovalState] = (),
    task_id: str | None = None,
) -> list[Approval]:
    """`limit` approvals behind a place, ordered by the time of the request and then the id."""
    query: Select[Any] = select(approvals).where(approvals.c.tenant_id == tenant_id)
    if task_id is not None:
        query = query.where(approvals.c.task_id == task_id)
    if states:
        query = query.where(approvals.c.state.in_([state.value for state in states]))
    columns = (approvals.c.requested_at, approvals.c.id)
    if behind is not None:
        place, at = tuple_(*columns), tuple_(behind.created_at, behind.id)
        query = query.where(place < at if newest_first else place > at)
    query = query.order_by(*(c.desc() for c in columns) if newest_first else columns).limit(limit)
    return [Approval.model_validate(dict(row)) for row in (await conn.execute(query)).mappings()]


async def decide(
    conn: AsyncConnection, tenant_id: str, approval_id: str, decision: ApprovalDecision, actor: str
) -> Decided:
    """Decide, once: the same decision again changes nothing.

    Raises:
        LonghaulError: ``NOT_FOUND``; ``ALREADY_DECIDED`` the other way; ``APPROVAL_EXPIRED``; ``ALREADY_FINISHED``
            where the task is being cancelled.
    """
    task = await _locked_task(conn, tenant_id, (await get(conn, tenant_id, approval_id)).task_id)
    found = await get(conn, tenant_id, approval_id)
    outcome = OUTCOME[decision.decision]
    if found.state is outcome:
        return Decided(found, None)
    _check_open(found, task)
    mine = (approvals.c.tenant_id == tenant_id, approvals.c.id == approval_id)
    values = {"state": outcome.value, "decided_at": task.now, "actor": actor, "note": decision.note}
    await conn.execute(update(approvals).where(*mine).values(values))
    told = ApprovalDecided(approval_id=approval_id, decision=decision.decision, actor=actor, note=decision.note or None)
    await _tell(conn, tenant_id, found.task_id, task.now, [_of(found, told)])
    return Decided(await get(conn, tenant_id, approval_id), task.control_seq + 1)


def _check_open(found: Approval, task: Row[Any]) -> None:
    if found.state is ApprovalState.EXPIRED or (
        found.state is ApprovalState.PENDING and (task.now >= found.expires_at or task.ended_at is not None)
    ):
        raise LonghaulError(ErrorCode.APPROVAL_EXPIRED, f"approval {found.id} has expired; nothing was run")
    if found.state is not ApprovalState.PENDING:
        raise LonghaulError(
            ErrorCode.ALREADY_DECIDED, f"approval {found.id} was {found.state.value} by {found.actor} before"
        )
    if task.cancel_requested_at is not None:
        raise LonghaulError(ErrorCode.ALREADY_FINISHED, f"task {found.task_id} is being cancelled")


async def expire_due(db: Database) -> bool:
    """Expire what nobody has decided in time; whether there may be more. Each task is a transaction of its own."""
    query = (
        select(approvals.c.tenant_id, approvals.c.task_id)
        .where(_pending(), approvals.c.expires_at <= func.clock_timestamp())
        .order_by(approvals.c.expires_at)
        .limit(_BATCH)
    )
    async with db.begin() as conn:
        due = (await conn.execute(query)).all()
    for tenant_id, task_id in sorted({(row.tenant_id, row.task_id) for row in due}):
        async with db.begin() as conn:
            task = await _locked_task(conn, tenant_id, task_id)
            drafts = await _expire(conn, tenant_id, task_id, task.now)
            if drafts:
                await _tell(conn, tenant_id, task_id, task.now, drafts)
    return len(due) == _BATCH


async def withdraw(conn: AsyncConnection, tenant_id: str, task_id: str) -> list[events.Draft]:
    """A task ends, under its lock: what was not decided has expired. The events to tell."""
    return await _expire(conn, tenant_id, task_id, None)


async def _expire(conn: AsyncConnection, tenant_id: str, task_id: str, due_at: datetime | None) -> list[events.Draft]:
    mine = (approvals.c.tenant_id == tenant_id, approvals.c.task_id == task_id, _pending())
    over = update(approvals).where(*mine).values(state=ApprovalState.EXPIRED.value).returning(approvals)
    if due_at is not None:
        over = over.where(approvals.c.expires_at <= due_at)
    rows = [Approval.model_validate(dict(row)) for row in (await conn.execute(over)).mappings()]
    rows.sort(key=lambda row: (row.requested_at, row.turn, row.call_index, row.id))
    return [_of(row, ApprovalExpired(approval_id=row.id)) for row in rows]


async def _locked_task(conn: AsyncConnection, tenant_id: str, task_id: str) -> Row[Any]:
    columns = (tasks.c.control_seq, tasks.c.ended_at, tasks.c.cancel_requested_at)
    mine = (tasks.c.tenant_id == tenant_id, tasks.c.id == task_id)
    await conn.execute(select(tasks.c.id).where(*mine).with_for_update(key_share=True))
    # the clock is read behind the lock: a wait for it must not make a late decision early
    query: Select[Any] = select(*columns, func.clock_timestamp().label("now")).where(*mine)
    task: Row[Any] = (await conn.execute(query)).one()
    return task


async def _tell(
    conn: AsyncConnection, tenant_id: str, task_id: str, at: datetime, drafts: Sequence[events.Draft]
) -> None:
    mine = (tasks.c.tenant_id == tenant_id, tasks.c.id == task_id)
    await conn.execute(update(tasks).where(*mine).values(control_seq=tasks.c.control_seq + 1))
    await events.append(conn, tenant_id=tenant_id, task_id=task_id, at=at, drafts=drafts)


def _pending() -> Any:
    return approvals.c.state == ApprovalState.PENDING.value


def _of(approval: Approval, data: ApprovalDecided | ApprovalExpired) -> events.Draft:
    return events.Draft(data, agent_id=approval.agent_id, step_id=approval.step_id, turn=approval.turn)
