"""The checkpoints of tasks: their rows. What they hold lies in the object store."""

from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, select, union
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.artifact import BlobRef
from agents.contracts.checkpoint import Checkpoint
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.run import AgentRef
from agents.contracts.sandbox import Snapshot
from services.store.tables import checkpoints, snapshots
from workflows.names import checkpoint_id


async def add(
    conn: AsyncConnection, executor: AgentRef, sandbox_id: str, snapshot: Snapshot, at: datetime
) -> Checkpoint | None:
    """Keep the row; None where it was kept before. The caller has locked the task."""
    place, manifest = executor.place, snapshot.manifest
    row: dict[str, Any] = {
        "id": checkpoint_id(executor),
        "tenant_id": executor.tenant_id,
        "task_id": place.task_id,
        "step_id": place.step,
        "revision": place.revision,
        "round": executor.round,
        "sandbox_id": sandbox_id,
        "manifest_sha256": manifest.sha256,
        "manifest_bytes": manifest.bytes,
        **snapshot.model_dump(exclude={"manifest", "state"}),
        "state": snapshot.state.model_dump(mode="json") if snapshot.state is not None else None,
        "created_at": at,
    }
    kept = insert(checkpoints).values(row).on_conflict_do_nothing().returning(checkpoints)
    found = (await conn.execute(kept)).mappings().one_or_none()
    return None if found is None else _model(found)


async def of_task(conn: AsyncConnection, tenant_id: str, task_id: str) -> list[Checkpoint]:
    """A task's checkpoints in the order in which they were taken; none for a task that is not the tenant's."""
    query = (
        select(checkpoints)
        .where(checkpoints.c.tenant_id == tenant_id, checkpoints.c.task_id == task_id)
        .order_by(checkpoints.c.created_at, checkpoints.c.id)
    )
    return [_model(row) for row in (await conn.execute(query)).mappings()]


async def get(conn: AsyncConnection, tenant_id: str, task_id: str, wanted: str) -> Checkpoint:
    """One checkpoint of a task.

    Raises:
        LonghaulError: ``NOT_FOUND``.
    """
    query = select(checkpoints).where(
        checkpoints.c.tenant_id == tenant_id, checkpoints.c.task_id == task_id, checkpoints.c.id == wanted
    )
    row = (await conn.execute(query)).mappings().one_or_none()
    if row is None:
        raise LonghaulError(ErrorCode.NOT_FOUND, f"there is no checkpoint {wanted} of this task")
    return _model(row)


async def manifests(conn: AsyncConnection, tenant_id: str) -> set[str]:
    """The sha256 of every manifest that a tenant's checkpoints need, or a sandbox that may be lost yet."""
    kept = select(checkpoints.c.manifest_sha256).where(checkpoints.c.tenant_id == tenant_id)
    running = select(snapshots.c.manifest_sha256).where(snapshots.c.tenant_id == tenant_id)
    return set((await conn.execute(union(kept, running))).scalars())


def _model(row: RowMapping) -> Checkpoint:
    manifest = BlobRef(sha256=row["manifest_sha256"], bytes=row["manifest_bytes"])
    return Checkpoint.model_validate({**row, "manifest": manifest})
