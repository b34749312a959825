"""Budget reservations that nobody will settle any more: their round is over, so their reply is lost."""

import logging
from collections import defaultdict
from datetime import UTC, datetime, timedelta

from sqlalchemy import func, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.store.database import Database
from services.store.tables import budget_reservations as held
from services.store.tables import model_calls, rounds, tasks

log = logging.getLogger(__name__)

_BATCH = 200


async def settle_orphans(db: Database, *, older_than_s: float = 60.0) -> bool:
    """Settle at their estimate the reservations whose round or task has ended; whether there may be more.

    A reply that was lost was still paid for, and how much is not known any more: the estimate is what was allowed.
    """
    now = datetime.now(UTC)
    async with db.begin() as conn:
        ended = or_(rounds.c.ended_at.is_not(None), tasks.c.ended_at.is_not(None))
        query = (
            select(held.c.key, held.c.fence, held.c.tenant_id, held.c.task_id, held.c.tokens, held.c.cost_micro)
            .join(tasks, tasks.c.id == held.c.task_id)
            .outerjoin(model_calls, model_calls.c.key == held.c.key)
            .outerjoin(rounds, (rounds.c.agent_id == model_calls.c.agent_id) & (rounds.c.round == model_calls.c.round))
            .where(held.c.settled_at.is_(None), held.c.reserved_at < now - timedelta(seconds=older_than_s), ended)
            .order_by(held.c.key, held.c.fence)
            .limit(_BATCH)
            .with_for_update(of=held, skip_locked=True)
        )
        rows = (await conn.execute(query)).all()
        if not rows:
            return False
        keys = [(row.key, row.fence) for row in rows]
        await conn.execute(update(held).where(tuple_(held.c.key, held.c.fence).in_(keys)).values(settled_at=now))
        sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for row in rows:
            sums[row.tenant_id, row.task_id][0] += row.tokens
            sums[row.tenant_id, row.task_id][1] += row.cost_micro
        for (tenant_id, task_id), (tokens, cost_micro) in sorted(sums.items()):
            await _charge(conn, tenant_id, task_id, tokens, cost_micro)
    log.warning("budget reservations of lost replies were settled", extra={"reservations": len(rows)})
    return len(rows) == _BATCH


async def _charge(conn: AsyncConnection, tenant_id: str, task_id: str, tokens: int, cost_micro: int) -> None:
    # not below zero: the end of a task sets what it has reserved to nothing
    await conn.execute(
        update(tasks)
        .where(tasks.c.tenant_id == tenant_id, tasks.c.id == task_id)
        .values(
            reserved_tokens=func.greatest(tasks.c.reserved_tokens - tokens, 0),
            reserved_cost_micro=func.greatest(tasks.c.reserved_cost_micro - cost_micro, 0),
            prompt_tokens=tasks.c.prompt_tokens + tokens,
            cost_micro=tasks.c.cost_micro + cost_micro,
        )
    )
