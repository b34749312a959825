"""Tasks as the API changes them: accepted, started, cancelled. Each is one transaction."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.artifact import BlobRef
from agents.contracts.base import excerpt
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.event import TaskCreated, TaskStatusChanged
from agents.contracts.run import TaskEnd, TaskRef
from agents.contracts.task import SLOT, StopReason, TaskSpec, TaskStatus, TaskView
from services.store import events, task_views
from services.store.tables import task_starts, tasks
from services.store.task_ends import write_end


@dataclass(frozen=True)
class NewTask:
    """A task about to be accepted. `instruction_blob` is where a long instruction lies in S3."""

    id: str
    tenant_id: str
    spec: TaskSpec
    instruction_sha256: str
    instruction_blob: BlobRef | None


@dataclass(frozen=True)
class Cancelled:
    """What a cancel did: the number of the control to signal, or None where nothing is left to stop."""

    control_seq: int | None


async def accept(conn: AsyncConnection, new: NewTask) -> TaskView:
    """Write the task, its start record and its first event; the caller's commit makes it accepted."""
    now = (await conn.execute(select(func.now()))).scalar_one()
    await conn.execute(insert(tasks).values(created_at=now, updated_at=now, **_columns(new, now)))
    await conn.execute(insert(task_starts).values(task_id=new.id, tenant_id=new.tenant_id, created_at=now))
    created = TaskCreated(instruction=excerpt(new.spec.instruction), tier=new.spec.tier)
    await events.insert_numbered(
        conn, tenant_id=new.tenant_id, task_id=new.id, at=now, first=1, drafts=[events.Draft(created)]
    )
    return await task_views.view(conn, new.tenant_id, new.id)


def _columns(new: NewTask, now: Any) -> dict[str, Any]:
    spec, limits = new.spec, new.spec.limits
    return {
        "id": new.id,
        "tenant_id": new.tenant_id,
        "instruction": None if new.instruction_blob else spec.instruction,
        "instruction_blob": new.instruction_blob.model_dump(mode="json") if new.instruction_blob else None,
        "instruction_excerpt": excerpt(spec.instruction),
        "instruction_sha256": new.instruction_sha256,
        "spec": spec.model_dump(mode="json", exclude={"instruction"}),
        "tier": spec.tier,
        "metadata": spec.metadata,
        "status": TaskStatus.QUEUED.value,
        "waiting_for": SLOT,
        "deadline_at": None if limits.wall_s is None else now + timedelta(seconds=limits.wall_s),
        "last_seq": 1,
        "tokens_limit": limits.tokens,
        "cost_limit_micro": limits.cost_micro,
        "turns_limit": limits.turns,
    }


async def mark_started(conn: AsyncConnection, tenant_id: str, task_id: str) -> None:
    """Note that the task's workflow exists."""
    await conn.execute(
        update(task_starts)
        .where(
            task_starts.c.tenant_id == tenant_id,
            task_starts.c.task_id == task_id,
            task_starts.c.started_at.is_(None),
        )
        .values(started_at=func.now())
    )


async def cancel(conn: AsyncConnection, tenant_id: str, task_id: str) -> Cancelled:
    """Ask for the end of a task. Asking again changes nothing and gives the same control number. One that still waits
    for its turn ends here and now: nothing of it runs.

    Raises:
        LonghaulError: ``NOT_FOUND``; ``ALREADY_FINISHED`` where it ended in another way.
    """
    mine = (tasks.c.tenant_id == tenant_id, tasks.c.id == task_id)
    columns = (tasks.c.epoch, tasks.c.status, tasks.c.cancel_requested_at, tasks.c.control_seq, tasks.c.admitted_at)
    row = (
        (await conn.execute(select(*columns, func.now().label("now")).where(*mine).with_for_update()))
        .mappings()
        .first()
    )
    if row is None:
        raise task_views.not_found(task_id)
    status = TaskStatus(row["status"])
    if status is TaskStatus.CANCELLED:
        return Cancelled(control_seq=None)
    if status.ended:
        raise LonghaulError(ErrorCode.ALREADY_FINISHED, f"task {task_id} has already {status.value}")
    if row["cancel_requested_at"] is not None:
        return Cancelled(control_seq=row["control_seq"])
    if row["admitted_at"] is None:
        task = TaskRef(tenant_id=tenant_id, task_id=task_id, epoch=row["epoch"])
        await write_end(conn, task, TaskEnd(stop_reason=StopReason.CANCELLED), row["now"])
        return Cancelled(control_seq=None)
    control_seq = row["control_seq"] + 1
    await conn.execute(
        update(tasks)
        .where(*mine)
        .values(
            status=TaskStatus.CANCELLING.value,
            waiting_for=None,
            cancel_requested_at=row["now"],
            control_seq=control_seq,
        )
    )
    changed = events.Draft(TaskStatusChanged(status=TaskStatus.CANCELLING))
    await events.append(conn, tenant_id=tenant_id, task_id=task_id, at=row["now"], drafts=[changed])
    return Cancelled(control_seq=control_seq)
