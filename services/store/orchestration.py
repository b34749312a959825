"""What the transactions of a task's own activities share: the guard, doing things once, the status."""

from datetime import datetime
from typing import Any

from sqlalchemy import Row, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.event import TaskStatusChanged
from agents.contracts.ids import PLAN_STEP, Place, Role
from agents.contracts.run import TaskRef
from agents.contracts.task import TaskStatus
from services.store.events import Draft, append
from services.store.tables import agents, ledger_transactions, tasks

_HELD_FAST = (TaskStatus.CANCELLING, TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED)


async def locked(conn: AsyncConnection, task: TaskRef) -> Row[Any]:
    """The task's row, locked; agents are locked before it.

    Raises:
        LonghaulError: ``NOT_FOUND``; ``ALREADY_FINISHED`` for an ended task: nothing may follow its last event.
    """
    row = await _lock(conn, task)
    if row.ended_at is not None:
        raise LonghaulError(ErrorCode.ALREADY_FINISHED, f"task {task.task_id} has ended")
    return row


async def locked_anyhow(conn: AsyncConnection, task: TaskRef) -> Row[Any]:
    """The task's row, locked, ended or not. Raises ``NOT_FOUND``."""
    return await _lock(conn, task)


async def _lock(conn: AsyncConnection, task: TaskRef) -> Row[Any]:
    query = select(tasks).where(tasks.c.tenant_id == task.tenant_id, tasks.c.id == task.task_id)
    row = (await conn.execute(query.with_for_update(key_share=True))).one_or_none()
    if row is None:
        raise LonghaulError(ErrorCode.NOT_FOUND, f"there is no task {task.task_id}")
    return row


async def first_time(conn: AsyncConnection, task: TaskRef, key: str, at: datetime) -> bool:
    """Whether `key` was not done before in this task; it is now. Needs the planner, who is there from the start."""
    planner = Place(task_id=task.task_id, epoch=task.epoch, role=Role.PLANNER, step=PLAN_STEP)
    row = {"key": f"{task.task_id}/{task.epoch}/{key}", "tenant_id": task.tenant_id, "agent_id": planner.agent_id}
    done = (
        insert(ledger_transactions).values(**row, at=at).on_conflict_do_nothing().returning(ledger_transactions.c.key)
    )
    return (await conn.execute(done)).first() is not None


async def set_status(conn: AsyncConnection, task: TaskRef, row: Row[Any], status: TaskStatus) -> list[Draft]:
    """Change the status and say so; a task that is being cancelled keeps saying that."""
    if row.status in _HELD_FAST or row.status == status:
        return []
    mine = (tasks.c.tenant_id == task.tenant_id, tasks.c.id == task.task_id)
    await conn.execute(update(tasks).where(*mine).values(status=status.value, waiting_for=None))
    return [Draft(TaskStatusChanged(status=status))]


async def rest(conn: AsyncConnection, task: TaskRef, row: Row[Any]) -> list[Draft]:
    """Where the agents that are left all wait, the task does: the work that was done beside them is over."""
    query = select(agents.c.state, agents.c.waiting_for).where(
        agents.c.tenant_id == task.tenant_id, agents.c.task_id == task.task_id, agents.c.state != "finished"
    )
    left = (await conn.execute(query.order_by(agents.c.activity_at))).all()
    if row.status in _HELD_FAST or row.status == TaskStatus.WAITING or {a.state for a in left} != {"waiting"}:
        return []
    waits = left[0].waiting_for
    mine = (tasks.c.tenant_id == task.tenant_id, tasks.c.id == task.task_id)
    await conn.execute(update(tasks).where(*mine).values(status=TaskStatus.WAITING.value, waiting_for=waits))
    return [Draft(TaskStatusChanged(status=TaskStatus.WAITING, waiting_for=waits))]


async def tell(conn: AsyncConnection, task: TaskRef, at: datetime, drafts: list[Draft]) -> None:
    """Append events, if any."""
    if drafts:
        await append(conn, tenant_id=task.tenant_id, task_id=task.task_id, at=at, drafts=drafts)
