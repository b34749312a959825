"""Where a waiting task stands in the queue."""

from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from services.store.tables import tasks

POSITION_MAX = 1_000
"""It is counted up to here; one behind it is shown as this."""


async def position(conn: AsyncConnection, tenant_id: str, row: RowMapping) -> int | None:
    """The place of a task among its tenant's waiting ones, from 1; None for one that does not wait. At most
    `POSITION_MAX` rows of a small index are counted."""
    if row["admitted_at"] is not None or row["ended_at"] is not None:
        return None
    before = before_query(tenant_id, row["created_at"], row["id"]).subquery()
    return int((await conn.execute(select(func.count()).select_from(before))).scalar_one()) + 1


def before_query(tenant_id: str, created_at: datetime, task_id: str) -> Any:
    """The waiting tasks of a tenant that are older than this one, cut."""
    waits = (tasks.c.tenant_id == tenant_id, tasks.c.admitted_at.is_(None), tasks.c.ended_at.is_(None))
    older = tuple_(tasks.c.created_at, tasks.c.id) < tuple_(created_at, task_id)
    return select(tasks.c.id).where(*waits, older).limit(POSITION_MAX - 1)
