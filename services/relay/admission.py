"""Waiting tasks get their place, or their end where their deadline passes before that. Rows say who waits and who holds
a place, so nothing is counted beside them, and a relay that is killed at any point leaves nothing to repair."""

import logging

from services.relay.starts import Reconciler
from services.store import queue
from services.store.database import Database

log = logging.getLogger(__name__)


class Admission:
    """Lets tasks in, at most `places` at once. Several relays may have one; one admits at a time."""

    def __init__(self, db: Database, reconciler: Reconciler, places: int) -> None:
        self._db = db
        self._reconciler = reconciler
        self._places = places

    async def round(self) -> bool:
        """End what is overdue, fill the free places, start what has a place and no workflow; whether there is more.

        Raises:
            LonghaulError: ``STORE_UNAVAILABLE``; ``UNAVAILABLE`` where Temporal is away: those admitted keep their
                place and are started later.
        """
        more = await self._expire()
        async with self._db.begin() as conn:
            admitted = await queue.admit(conn, self._places)
        if admitted:
            log.info("tasks were admitted", extra={"tasks": [task.task_id for task in admitted]})
        await self._reconciler.start_missing()
        return more or len(admitted) == queue.BATCH

    async def _expire(self) -> bool:
        async with self._db.begin() as conn:
            rows = await queue.overdue(conn, queue.BATCH)
        for row in rows:
            async with self._db.begin() as conn:
                await queue.expire(conn, row)
        return len(rows) == queue.BATCH
