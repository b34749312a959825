"""Events: appended in the transaction of the change they tell of, numbered per task without gaps."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.event import Event, EventData
from services.store.tables import events, tasks


@dataclass(frozen=True)
class Draft:
    """An event that has no number yet."""

    data: EventData
    agent_id: str | None = None
    step_id: str | None = None
    turn: int | None = None


async def append(conn: AsyncConnection, *, tenant_id: str, task_id: str, at: datetime, drafts: Sequence[Draft]) -> int:
    """Number and store events; returns the task's last number.

    Takes the task's row lock, so call it after the locks of agent, mail and budget (the lock order everywhere) and
    with all events of the transaction at once.

    Raises:
        LonghaulError: ``NOT_FOUND`` where the tenant has no such task.
    """
    numbered = (
        update(tasks)
        .where(tasks.c.tenant_id == tenant_id, tasks.c.id == task_id)
        .values(last_seq=tasks.c.last_seq + len(drafts), updated_at=at)
        .returning(tasks.c.last_seq)
    )
    last = (await conn.execute(numbered)).scalar_one_or_none()
    if last is None:
        raise LonghaulError(ErrorCode.NOT_FOUND, f"there is no task {task_id}")
    await insert_numbered(
        conn, tenant_id=tenant_id, task_id=task_id, at=at, first=last - len(drafts) + 1, drafts=drafts
    )
    return int(last)


async def insert_numbered(
    conn: AsyncConnection, *, tenant_id: str, task_id: str, at: datetime, first: int, drafts: Sequence[Draft]
) -> None:
    """Store events under numbers that the caller took from the task's row in this same transaction."""
    if not drafts:
        return
    rows = [
        {
            "tenant_id": tenant_id,
            "task_id": task_id,
            "seq": first + n,
            "type": draft.data.type,
            "at": at,
            "agent_id": draft.agent_id,
            "step_id": draft.step_id,
            "turn": draft.turn,
            "data": draft.data.model_dump(mode="json", exclude_none=True),
        }
        for n, draft in enumerate(drafts)
    ]
    await conn.execute(insert(events), rows)


async def read(
    conn: AsyncConnection,
    *,
    tenant_id: str,
    task_id: str,
    after: int = 0,
    before: int | None = None,
    limit: int = 200,
    newest: bool = False,
    kinds: Sequence[str] = (),
    agent_id: str | None = None,
) -> list[Event]:
    """A page of a task's events in the order of their numbers: the first `limit` after `after`, or with `newest` the
    last `limit` before `before`. `kinds` are types (``tool.called``) or subjects (``tool``)."""
    query = select(events).where(events.c.tenant_id == tenant_id, events.c.task_id == task_id, events.c.seq > after)
    if before is not None:
        query = query.where(events.c.seq < before)
    if kinds:
        query = query.where(events.c.type.in_(kinds) | func.split_part(events.c.type, ".", 1).in_(kinds))
    if agent_id is not None:
        query = query.where(events.c.agent_id == agent_id)
    query = query.order_by(events.c.seq.desc() if newest else events.c.seq).limit(limit)
    rows = [Event.model_validate(dict(row)) for row in (await conn.execute(query)).mappings()]
    return rows[::-1] if newest else rows
