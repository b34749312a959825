"""The queue of tasks: who waits for a place, and who gets one. Rows alone say so: a task waits until `admitted_at` is
set, and holds a place from then on until it ends, except while it waits for a person."""

from collections import Counter
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, RowMapping, ScalarSelect, and_, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.errors import ErrorCode, ErrorInfo
from agents.contracts.run import TaskEnd, TaskRef
from agents.contracts.task import FREES_ITS_SLOT, StopReason, TaskStatus
from agents.policy.fairness import Claim, turns
from services.store.tables import QUEUED, task_starts, tasks
from services.store.task_ends import write_end

T = TypeVar("T")

BATCH = 100
"""Places given in one transaction."""
_LOCK = 0x61646D69
_QUEUED = and_(tasks.c.admitted_at.is_(None), tasks.c.ended_at.is_(None))
_ADMITTED = and_(tasks.c.admitted_at.is_not(None), tasks.c.ended_at.is_(None))

# Tenants one by one along the index: as many steps as there are tenants, however many tasks each has in the queue.
CLAIMS = text(
    f"""
    WITH RECURSIVE waiting (tenant_id) AS (
        (SELECT tenant_id FROM tasks WHERE {QUEUED} ORDER BY tenant_id LIMIT 1)
        UNION ALL
        SELECT (
            SELECT t.tenant_id FROM tasks t
            WHERE t.admitted_at IS NULL AND t.ended_at IS NULL AND t.tenant_id > w.tenant_id
            ORDER BY t.tenant_id LIMIT 1
        )
        FROM waiting w WHERE w.tenant_id IS NOT NULL
    )
    SELECT
        w.tenant_id,
        (
            SELECT count(*) FROM (
                SELECT FROM tasks t
                WHERE t.admitted_at IS NULL AND t.ended_at IS NULL AND t.tenant_id = w.tenant_id LIMIT :places
            ) AS counted
        ) AS waiting,
        (
            SELECT t.admitted_at FROM tasks t WHERE t.tenant_id = w.tenant_id AND t.admitted_at IS NOT NULL
            ORDER BY t.admitted_at DESC LIMIT 1
        ) AS served_at
    FROM waiting w WHERE w.tenant_id IS NOT NULL
    """
)
HOLDERS = (
    select(tasks.c.tenant_id)
    .where(
        _ADMITTED,
        or_(
            tasks.c.status != TaskStatus.WAITING.value,
            tasks.c.waiting_for.is_(None),
            tasks.c.waiting_for.not_in(FREES_ITS_SLOT),
        ),
    )
    .order_by(tasks.c.id)
)
"""A row for every place that is held. The order has the planner take the small index."""
OVERDUE = (
    select(tasks.c.id, tasks.c.tenant_id, tasks.c.epoch, tasks.c.created_at, tasks.c.deadline_at)
    .where(_QUEUED, tasks.c.deadline_at.is_not(None), tasks.c.deadline_at < func.now())
    .order_by(tasks.c.deadline_at)
)


def of_start(column: ColumnElement[T]) -> ScalarSelect[T]:
    """An expression over a task's start record. Not a join: it is looked up for each of a few tasks, and no planner
    can take it into its head to read all start records instead."""
    return select(column).where(task_starts.c.task_id == tasks.c.id).correlate(tasks).scalar_subquery()


UNSTARTED = (
    select(tasks.c.id, tasks.c.tenant_id, tasks.c.epoch)
    .where(_ADMITTED, of_start(task_starts.c.started_at.is_(None)))
    .order_by(tasks.c.id)
)
"""Admitted tasks without a workflow: whoever admitted them died, or Temporal is away."""


async def admit(conn: AsyncConnection, places: int) -> list[TaskRef]:
    """Give the places that are free of `places` to waiting tasks: tenants take turns (`agents.policy.fairness`), within
    a tenant the oldest is first. Nothing where another relay is at it at this moment."""
    if not (await conn.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _LOCK})).scalar():
        return []
    held = Counter((await conn.execute(HOLDERS)).scalars())
    free = places - held.total()
    if free <= 0:
        return []
    rows = (await conn.execute(CLAIMS, {"places": free})).all()
    claims = [Claim(row.tenant_id, row.waiting, held[row.tenant_id], row.served_at) for row in rows]
    given = [await _give(conn, tenant_id) for tenant_id in turns(claims, min(free, BATCH))]
    return [task for task in given if task is not None]


async def _give(conn: AsyncConnection, tenant_id: str) -> TaskRef | None:
    """One place. The clock goes on from one to the next, so the times tell the order of the turns."""
    give = (
        update(tasks)
        .where(tasks.c.tenant_id == tenant_id, tasks.c.id == oldest(tenant_id).scalar_subquery())
        .values(admitted_at=func.clock_timestamp(), waiting_for=None)
        .returning(tasks.c.id, tasks.c.epoch)
    )
    row = (await conn.execute(give)).one_or_none()
    return None if row is None else TaskRef(tenant_id=tenant_id, task_id=row.id, epoch=row.epoch)


def oldest(tenant_id: str) -> Any:
    """The tenant's task that has waited longest, locked; one that somebody holds (a cancel) is passed over."""
    mine = select(tasks.c.id).where(_QUEUED, tasks.c.tenant_id == tenant_id).order_by(tasks.c.created_at, tasks.c.id)
    return mine.limit(1).with_for_update(skip_locked=True)


async def overdue(conn: AsyncConnection, limit: int) -> list[RowMapping]:
    """Waiting tasks whose deadline has passed."""
    return list((await conn.execute(OVERDUE.limit(limit))).mappings())


async def expire(conn: AsyncConnection, row: RowMapping) -> bool:
    """End a task whose deadline passed in the queue, unless it has left the queue meanwhile."""
    mine = (tasks.c.tenant_id == row["tenant_id"], tasks.c.id == row["id"])
    found = await conn.execute(select(func.now()).where(*mine, _QUEUED).with_for_update())
    now = found.scalar_one_or_none()
    if now is None:
        return False
    seconds = (row["deadline_at"] - row["created_at"]).total_seconds()
    detail = f"the limit wall_s = {seconds:.0f} passed before the task's turn came; allow more, or submit less at once"
    error = ErrorInfo(code=ErrorCode.DEADLINE_EXCEEDED, detail=detail)
    task = TaskRef(tenant_id=row["tenant_id"], task_id=row["id"], epoch=row["epoch"])
    await write_end(conn, task, TaskEnd(stop_reason=StopReason.DEADLINE, error=error), now)
    return True
