"""The artifacts that teams kept: read here for the API; the ledger writes them."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.artifact import Artifact
from agents.contracts.errors import ErrorCode, LonghaulError
from services.store.tables import artifacts


async def of_task(conn: AsyncConnection, tenant_id: str, task_id: str) -> list[Artifact]:
    """A task's artifacts in the order in which they were kept; none for a task that is not the tenant's."""
    query = (
        select(artifacts)
        .where(artifacts.c.tenant_id == tenant_id, artifacts.c.task_id == task_id)
        .order_by(artifacts.c.created_at, artifacts.c.id)
    )
    return [Artifact.model_validate(dict(row)) for row in (await conn.execute(query)).mappings()]


async def get(conn: AsyncConnection, tenant_id: str, artifact_id: str) -> Artifact:
    """One artifact.

    Raises:
        LonghaulError: ``NOT_FOUND``.
    """
    query = select(artifacts).where(artifacts.c.tenant_id == tenant_id, artifacts.c.id == artifact_id)
    row = (await conn.execute(query)).mappings().first()
    if row is None:
        raise LonghaulError(ErrorCode.NOT_FOUND, f"there is no artifact {artifact_id}")
    return Artifact.model_validate(dict(row))
