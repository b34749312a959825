"""Sandboxes that nobody needs any more are destroyed, whoever forgot them.

A task's end destroys its sandboxes. What can still be left: a copy for a review that an attempt made which was replaced
and did not know it yet, and whatever a runner made whose caller died before it could note it. Rows are the truth: a row
is written before its sandbox is made.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sqlalchemy import func, select

from agents.contracts.sandbox import SandboxInfo
from services.relay.starts import each
from services.store.database import Database
from services.store.tables import sandboxes, tasks

log = logging.getLogger(__name__)

GRACE = timedelta(minutes=1)
"""For one whose row or task has ended: its end may be under way."""
UNKNOWN_GRACE = timedelta(minutes=10)
"""For one without a row."""
_BATCH = 1_000


class Runner(Protocol):
    """What is asked of the runner; see `workflows.ports.Runner` for the faults."""

    async def list_sandboxes(self) -> list[SandboxInfo]:
        """Every sandbox that is there."""
        ...

    async def destroy(self, sandbox_id: str) -> None:
        """End and delete it; a second time does nothing."""
        ...


class Reaper:
    """Compares what runs with the rows. One round is `reap`, to be repeated."""

    def __init__(self, db: Database, runner: Runner) -> None:
        self._db = db
        self._runner = runner

    async def reap(self) -> bool:
        """Destroy what no open task has.

        Raises:
            LonghaulError: ``RUNNER_UNAVAILABLE``, ``STORE_UNAVAILABLE``.
        """
        found, now = await self._runner.list_sandboxes(), datetime.now(UTC)
        old = [sandbox for sandbox in found if sandbox.created_at < now - GRACE]
        for at in range(0, len(old), _BATCH):
            batch = old[at : at + _BATCH]
            ends = await self._ends([sandbox.id for sandbox in batch])
            await each([sandbox for sandbox in batch if _forgotten(sandbox, ends, now)], self._destroy)
        return False

    async def _ends(self, ids: Sequence[str]) -> dict[str, datetime | None]:
        """When the need of each sandbox ended; None while it lasts. One that no row names is left out."""
        query = (
            select(sandboxes.c.id, func.least(sandboxes.c.ended_at, tasks.c.ended_at).label("ended_at"))
            .join(tasks, (tasks.c.id == sandboxes.c.task_id) & (tasks.c.tenant_id == sandboxes.c.tenant_id))
            .where(sandboxes.c.id.in_(ids))
        )
        async with self._db.begin() as conn:
            return {row.id: row.ended_at for row in await conn.execute(query)}

    async def _destroy(self, sandbox: SandboxInfo) -> None:
        await self._runner.destroy(sandbox.id)
        log.warning("a forgotten sandbox was destroyed", extra={"sandbox_id": sandbox.id, "task_id": sandbox.task_id})


def _forgotten(sandbox: SandboxInfo, ends: dict[str, datetime | None], now: datetime) -> bool:
    if sandbox.id not in ends:
        return sandbox.created_at < now - UNKNOWN_GRACE
    ended_at = ends[sandbox.id]
    return ended_at is not None and ended_at < now - GRACE
