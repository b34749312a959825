"""Rows of sandboxes: which one stands in another's place now, and those that are given back."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.artifact import BlobRef
from agents.contracts.event import SandboxReleased
from agents.contracts.run import TaskRef
from agents.contracts.sandbox import SandboxState
from services.store.events import Draft
from services.store.tables import sandboxes, snapshots
from workflows.task_ports import Box

EXPECTED = "expected"
"""The state of a sandbox's row before the sandbox is known to be there."""

origin_id: ColumnElement[str] = func.coalesce(sandboxes.c.origin, sandboxes.c.id)
_first = sandboxes.alias("first")


async def current(conn: AsyncConnection, tenant_id: str, sandbox_id: str) -> Box | None:
    """The last of those that were made in place of this one, or itself. None where no row names it."""
    of_same = select(func.coalesce(_first.c.origin, _first.c.id)).where(
        _first.c.tenant_id == tenant_id, _first.c.id == sandbox_id
    )
    query = (
        select(sandboxes, snapshots.c.manifest_sha256, snapshots.c.manifest_bytes, origin_id.label("first"))
        .outerjoin(snapshots, (snapshots.c.id == sandboxes.c.snapshot_id) & (snapshots.c.tenant_id == tenant_id))
        .where(sandboxes.c.tenant_id == tenant_id, origin_id == of_same.scalar_subquery())
        .order_by(sandboxes.c.fence.desc())
        .limit(1)
    )
    row = (await conn.execute(query)).one_or_none()
    return None if row is None else _box(row)


def _box(row: Row[Any]) -> Box:
    made_from = row.manifest_sha256
    return Box(
        id=row.id,
        fence=row.fence,
        origin=row.first,
        purpose=row.purpose,
        ready=row.state != EXPECTED,
        source=None if made_from is None else BlobRef(sha256=made_from, bytes=row.manifest_bytes),
    )


async def kept_at(conn: AsyncConnection, tenant_id: str, box: Box) -> datetime:
    """When a sandbox's files were last kept; before that, when it was made."""
    kept = select(func.max(snapshots.c.taken_at)).where(
        snapshots.c.tenant_id == tenant_id, snapshots.c.origin == box.origin
    )
    made = select(sandboxes.c.created_at).where(sandboxes.c.tenant_id == tenant_id, sandboxes.c.id == box.id)
    last: datetime = (
        await conn.execute(select(func.greatest(kept.scalar_subquery(), made.scalar_subquery())))
    ).scalar_one()
    return last


async def released(conn: AsyncConnection, task: TaskRef, at: datetime, sandbox_id: str | None = None) -> list[Draft]:
    """Mark a sandbox (or all of the task) as gone; the events of those that were not yet."""
    which = [sandboxes.c.tenant_id == task.tenant_id, sandboxes.c.task_id == task.task_id]
    which += [sandboxes.c.ended_at.is_(None)]
    which += [sandboxes.c.id == sandbox_id] if sandbox_id is not None else []
    gone = update(sandboxes).where(*which).values(state=SandboxState.GONE.value, ended_at=at).returning(sandboxes.c.id)
    return [Draft(SandboxReleased(sandbox_id=name)) for name in sorted((await conn.execute(gone)).scalars())]
