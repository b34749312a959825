"""Parts of snapshots that no checkpoint needs any more are collected, a tenant at a time."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from sqlalchemy import func, select

from agents.contracts.errors import ErrorCode, LonghaulError
from services.snapshots.collect import collect
from services.snapshots.shelf import Shelf
from services.store import checkpoints
from services.store.database import Database
from services.store.tables import tenants

log = logging.getLogger(__name__)

EVERY_S = 6 * 3_600.0
FIRST_AFTER_S = 1_800.0
_LOCK = 7_203_411
"""Of the database: two collections at once could take what the other has found needed."""


class Collector:
    """Collects for every tenant. One round is `collect`, to be repeated. `now` is by the store's clock."""

    def __init__(
        self, db: Database, shelf_of: Callable[[str], Shelf], now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._db = db
        self._shelf_of = shelf_of
        self._now = now

    async def collect(self) -> bool:
        """Do nothing where another relay is at it. A tenant with a damaged snapshot is left as it is.

        Raises:
            LonghaulError: ``OBJECTS_UNAVAILABLE``, ``STORE_UNAVAILABLE``.
        """
        async with self._db.begin() as conn:
            if not (await conn.execute(select(func.pg_try_advisory_xact_lock(_LOCK)))).scalar_one():
                return False
            for tenant_id in (await conn.execute(select(tenants.c.tenant_id))).scalars().all():
                await self._tenant(tenant_id)
        return False

    async def _tenant(self, tenant_id: str) -> None:
        loop = asyncio.get_running_loop()

        def live() -> set[str]:
            return asyncio.run_coroutine_threadsafe(self._live(tenant_id), loop).result()

        try:
            done = await asyncio.to_thread(collect, self._shelf_of(tenant_id), live, self._now())
        except LonghaulError as error:
            if error.code is not ErrorCode.SNAPSHOT_FAILED:
                raise
            log.warning("no snapshots are collected for tenant %s: %s", tenant_id, error.detail)
            return
        if done.deleted:
            log.info("%s parts of snapshots, %s bytes, were collected", done.deleted, done.deleted_bytes)

    async def _live(self, tenant_id: str) -> set[str]:
        async with self._db.begin() as conn:
            return await checkpoints.manifests(conn, tenant_id)
