"""Answers under idempotency keys that nobody will ask for any more."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, select, tuple_

from services.store.database import Database
from services.store.tables import idempotency

KEPT = timedelta(days=7)
_BATCH = 1_000
_KEY = (idempotency.c.tenant_id, idempotency.c.key)
_OLDEST_FIRST = select(*_KEY).order_by(idempotency.c.created_at).limit(_BATCH).with_for_update(skip_locked=True)


async def purge(db: Database) -> bool:
    """Delete a batch of answers older than `KEPT`; whether there may be more. Their keys are as good as new then."""
    old = _OLDEST_FIRST.where(idempotency.c.created_at < datetime.now(UTC) - KEPT)
    async with db.begin() as conn:
        gone = await conn.execute(delete(idempotency).where(tuple_(*_KEY).in_(old)))
    return gone.rowcount == _BATCH
