"""Rows of sandboxes that are given back."""

from datetime import datetime

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.event import SandboxReleased
from agents.contracts.run import TaskRef
from agents.contracts.sandbox import SandboxState
from services.store.events import Draft
from services.store.tables import sandboxes


async def released(conn: AsyncConnection, task: TaskRef, at: datetime, sandbox_id: str | None = None) -> list[Draft]:
    """Mark a sandbox (or all of the task) as gone; the events of those that were not yet."""
    which = [sandboxes.c.tenant_id == task.tenant_id, sandboxes.c.task_id == task.task_id]
    which += [sandboxes.c.ended_at.is_(None)]
    which += [sandboxes.c.id == sandbox_id] if sandbox_id is not None else []
    gone = update(sandboxes).where(*which).values(state=SandboxState.GONE.value, ended_at=at).returning(sandboxes.c.id)
    return [Draft(SandboxReleased(sandbox_id=name)) for name in sorted((await conn.execute(gone)).scalars())]
