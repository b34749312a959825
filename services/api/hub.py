"""Who watches which task: one reader of the database per task and process, however many look on.

A message of NATS is a hint: it is taken where it is the very next number, anything else makes the reader look into the
database, and so does a clock. Each looker-on has a place of its own in the task's recent events; one that has fallen
behind those reads pages from the database, so nothing grows with the slowest.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import islice

from sqlalchemy import select

from agents.contracts.errors import LonghaulError
from agents.contracts.event import TERMINAL_TYPES, Event
from agents.contracts.task import TaskStatus
from services.store import events, task_views
from services.store.database import Database
from services.store.tables import tasks

POLL_S = 2.0
_PAGE = 200
_RECENT = 256
_DELTAS = 256

log = logging.getLogger(__name__)
Key = tuple[str, str]
"""Tenant and task."""


class Reader:
    """One that looks on. `deltas` keeps the newest pieces of streaming replies; older ones fall out."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.deltas: deque[bytes] = deque(maxlen=_DELTAS)


class Watched:
    """A task that somebody watches. `seq` is the last number known; once `ended`, none will follow it."""

    def __init__(self, db: Database, tenant_id: str, task_id: str) -> None:
        self._db = db
        self._tenant_id = tenant_id
        self._task_id = task_id
        self._recent: deque[Event] = deque(maxlen=_RECENT)
        self._look = asyncio.Event()
        self._opening = asyncio.Lock()
        self._pump: asyncio.Task[None] | None = None
        self.readers: set[Reader] = set()
        self.seq = -1
        self.ended = False
        self.closing = False

    async def open(self) -> None:
        """Take the cursor, once; what comes later is seen.

        Raises:
            LonghaulError: ``NOT_FOUND``, ``STORE_UNAVAILABLE``.
        """
        async with self._opening:
            if self._pump is not None:
                return
            query = select(tasks.c.last_seq, tasks.c.status).where(
                tasks.c.tenant_id == self._tenant_id, tasks.c.id == self._task_id
            )
            async with self._db.begin() as conn:
                row = (await conn.execute(query)).one_or_none()
            if row is None:
                raise task_views.not_found(self._task_id)
            self.seq, self.ended = row.last_seq, TaskStatus(row.status).ended
            self._pump = asyncio.create_task(self._keep_up(), name=f"watch {self._task_id}")

    async def close(self) -> None:
        """Stop reading."""
        if self._pump:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)

    async def after(self, seq: int) -> list[Event]:
        """The events behind a number, a page at most; none where there are none yet.

        Raises:
            LonghaulError: ``STORE_UNAVAILABLE``.
        """
        if seq >= self.seq:
            return []
        if self._recent and self._recent[0].seq <= seq + 1:
            skip = max(0, seq + 1 - self._recent[0].seq)
            return list(islice(self._recent, skip, skip + _PAGE))
        return await self._page(seq)

    def hint(self, body: bytes) -> None:
        """An event as a message told of it."""
        try:
            event = Event.model_validate_json(body)
        except ValueError:
            self._look.set()  # a newer process may know a type that this one does not; the database decides
            return
        if event.seq == self.seq + 1:
            self._take(event)
        elif event.seq > self.seq:
            self._look.set()

    def tell(self) -> None:
        """Wake every reader."""
        for reader in self.readers:
            reader.changed.set()

    async def _page(self, seq: int) -> list[Event]:
        async with self._db.begin() as conn:
            return await events.read(conn, tenant_id=self._tenant_id, task_id=self._task_id, after=seq, limit=_PAGE)

    async def _keep_up(self) -> None:
        while not self.ended:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._look.wait()
            self._look.clear()
            try:
                await self.catch_up()
            except LonghaulError as error:
                log.info("events will be looked for again", extra={"task_id": self._task_id, "why": str(error)})
            except Exception:
                log.exception("the events of a task cannot be read", extra={"task_id": self._task_id})
                self.closing = True
                self.tell()
                return

    async def catch_up(self) -> None:
        """Take what the database has and this does not.

        Raises:
            LonghaulError: ``STORE_UNAVAILABLE``.
        """
        while page := await self._page(self.seq):
            for event in page:
                if event.seq > self.seq:
                    self._take(event)
            if len(page) < _PAGE:
                return

    def _take(self, event: Event) -> None:
        self._recent.append(event)
        self.seq = event.seq
        self.ended = self.ended or event.data.type in TERMINAL_TYPES
        self.tell()


class Hub:
    """All watched tasks of this process."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._watched: dict[Key, Watched] = {}
        self._closing = False

    @property
    def watched(self) -> int:
        """How many tasks are being read."""
        return len(self._watched)

    @property
    def readers(self) -> int:
        """How many look on."""
        return sum(len(task.readers) for task in self._watched.values())

    @asynccontextmanager
    async def watch(self, tenant_id: str, task_id: str) -> AsyncIterator[tuple[Watched, Reader]]:
        """Look on at a task inside the block.

        Raises:
            LonghaulError: ``NOT_FOUND``, ``STORE_UNAVAILABLE``.
        """
        key = (tenant_id, task_id)
        task = self._watched.setdefault(key, Watched(self._db, tenant_id, task_id))
        reader = Reader()
        task.readers.add(reader)
        try:
            await task.open()
            task.closing = task.closing or self._closing
            yield task, reader
        finally:
            task.readers.discard(reader)
            if not task.readers and self._watched.get(key) is task:
                del self._watched[key]
                await task.close()

    async def wait_for_end(self, tenant_id: str, task_id: str, wait_s: float) -> None:
        """Return once the task has ended, or `wait_s` seconds have passed, or this process is asked to end."""
        if wait_s <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s), self.watch(tenant_id, task_id) as (task, reader):
                while not (task.ended or task.closing):
                    await reader.changed.wait()
                    reader.changed.clear()

    def on_event(self, tenant_id: str, task_id: str, body: bytes) -> None:
        """A message told of an event."""
        if (task := self._watched.get((tenant_id, task_id))) is not None:
            task.hint(body)

    def on_delta(self, tenant_id: str, task_id: str, body: bytes) -> None:
        """A message brought a piece of a streaming reply."""
        if (task := self._watched.get((tenant_id, task_id))) is not None:
            for reader in task.readers:
                reader.deltas.append(body)
            task.tell()

    def close(self) -> None:
        """Tell every stream to end; its reader opens a new one, elsewhere or later."""
        self._closing = True
        for task in self._watched.values():
            task.closing = True
            task.tell()
