"""Idempotency keys: a request that is repeated under its key gets the answer of the first time."""

from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel
from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.base import read_stored
from agents.contracts.errors import ErrorCode, LonghaulError
from services.store.tables import idempotency

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Once:
    """A request under a key of the tenant's own. `body_sha256` says what was asked."""

    tenant_id: str
    key: str
    body_sha256: str


async def answered(conn: AsyncConnection, once: Once, kind: type[M]) -> M | None:
    """The answer that was given under this key, or None.

    Raises:
        LonghaulError: ``IDEMPOTENCY_KEY_REUSED`` where something else was asked under it.
    """
    query = select(idempotency.c.body_sha256, idempotency.c.answer).where(
        idempotency.c.tenant_id == once.tenant_id, idempotency.c.key == once.key
    )
    row = (await conn.execute(query)).mappings().first()
    if row is None:
        return None
    if row["body_sha256"] != once.body_sha256:
        raise LonghaulError(
            ErrorCode.IDEMPOTENCY_KEY_REUSED,
            "this Idempotency-Key was used with another body; repeat that request, or take a new key for a new request",
        )
    return read_stored(kind, row["answer"])


async def claim(conn: AsyncConnection, once: Once) -> None:
    """Hold the key until the transaction ends.

    Raises:
        LonghaulError: ``IDEMPOTENCY_IN_FLIGHT`` where another request holds it.
    """
    name = f"{once.tenant_id}\n{once.key}"
    lock = func.pg_try_advisory_xact_lock(func.hashtextextended(name, 0))
    if not (await conn.execute(select(lock))).scalar_one():
        raise LonghaulError(
            ErrorCode.IDEMPOTENCY_IN_FLIGHT,
            "a request with this Idempotency-Key is being worked on; repeat it to get its answer",
            retry_after_s=1,
        )


async def keep(conn: AsyncConnection, once: Once, answer: BaseModel, location: str, status: int = 202) -> None:
    """Store the answer in the transaction of what it tells of."""
    await conn.execute(
        insert(idempotency).values(
            tenant_id=once.tenant_id,
            key=once.key,
            body_sha256=once.body_sha256,
            status=status,
            location=location,
            answer=answer.model_dump(mode="json"),
            created_at=func.now(),
        )
    )
