"""Tasks and their workflows: started where one is missing, woken where a cancel waits, told of where one is gone."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any, TypeVar

from sqlalchemy import Row, and_, select
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from agents.contracts.event import TaskStalled
from agents.contracts.run import AgentRef, TaskRef
from services.store import events
from services.store.database import Database
from services.store.queue import UNSTARTED, of_start
from services.store.tables import events as event_rows
from services.store.tables import task_starts, tasks
from services.store.tasks import mark_started
from services.temporal import PATIENCE, asked, start_task, workflow_id
from workflows.names import child_id
from workflows.ports import Live

log = logging.getLogger(__name__)

T = TypeVar("T")

_BATCH = 100
_SIDE_BY_SIDE = 8

_OPEN = and_(tasks.c.admitted_at.is_not(None), tasks.c.ended_at.is_(None))
CANCELLING = (
    select(tasks.c.id, tasks.c.tenant_id, tasks.c.epoch, tasks.c.control_seq)
    .where(tasks.c.cancel_requested_at.is_not(None), tasks.c.ended_at.is_(None))
    .where(of_start(task_starts.c.started_at.is_not(None)))
    .order_by(tasks.c.id)
)
IDLE = select(tasks.c.id, tasks.c.tenant_id).where(_OPEN).order_by(tasks.c.id)


class Workflows:
    """What the relay asks of Temporal. All raise ``UNAVAILABLE`` while it is away."""

    def __init__(self, client: Client, queue: str) -> None:
        self._client = client
        self._queue = queue

    async def start(self, ref: TaskRef, *, even_if_it_ran: bool = False) -> None:
        """Start a task's workflow; one that runs is left alone."""
        await asked(start_task(self._client, ref, self._queue, PATIENCE, even_if_it_ran=even_if_it_ran))

    async def signal(self, task_id: str, control_seq: int) -> bool:
        """Tell a task's workflow to look at its controls; False where there is no such workflow."""
        handle = self._client.get_workflow_handle(workflow_id(task_id))
        return await _found(handle.signal("control", control_seq, rpc_timeout=PATIENCE)) is not None

    async def wake(self, agent: AgentRef, control_seq: int) -> bool:
        """Tell an agent's workflow that something lies in the rows; False where there is no such workflow."""
        handle = self._client.get_workflow_handle(child_id(agent))
        return await _found(handle.signal("wake", control_seq, rpc_timeout=PATIENCE)) is not None

    async def running(self, task_id: str) -> bool:
        """Whether a task's workflow is under way."""
        handle = self._client.get_workflow_handle(workflow_id(task_id))
        description = await _found(_described(handle))
        return description == (WorkflowExecutionStatus.RUNNING,)


class Reconciler:
    """Brings tasks and workflows together again. Each method is one round, to be repeated."""

    def __init__(self, db: Database, workflows: Workflows, live: Live) -> None:
        self._db = db
        self._workflows = workflows
        self._live = live
        self._after = ""
        self._told: set[str] = set()
        self._signalled: dict[str, float] = {}

    async def start_missing(self) -> bool:
        """Start the workflow of every admitted task that has none."""
        rows = await self._read(UNSTARTED.limit(_BATCH))
        await each(rows, self._start)
        return len(rows) == _BATCH

    async def tell_of_cancels(self, *, again_s: float = 5.0) -> bool:
        """Signal every task whose cancel has been asked for and that has not ended: a new one at once, the others again
        after `again_s`."""
        rows = await self._read(CANCELLING)
        now = time.monotonic()
        self._signalled = {row.id: self._signalled.get(row.id, -inf) for row in rows}
        await each([row for row in rows if now - self._signalled[row.id] >= again_s], self._signal)
        return False

    async def find_stalled(self, *, idle_s: float = 60.0) -> bool:
        """Tell, once a task, of open tasks whose workflow is gone. They are not started again: what the lost workflow
        was at is not known. Looks at a hundred idle tasks a round."""
        query = (
            IDLE.where(tasks.c.id > self._after, tasks.c.updated_at < _ago(idle_s))
            .where(of_start(task_starts.c.started_at < _ago(min(idle_s, 15.0))))
            .limit(_BATCH)
        )
        rows = await self._read(query)
        await each([row for row in rows if row.id not in self._told], self._tell_if_gone)
        self._after = rows[-1].id if len(rows) == _BATCH else ""
        return False

    async def _read(self, query: Any) -> Sequence[Row[Any]]:
        async with self._db.begin() as conn:
            return (await conn.execute(query)).all()

    async def _start(self, row: Row[Any]) -> None:
        await self._workflows.start(TaskRef(tenant_id=row.tenant_id, task_id=row.id, epoch=row.epoch))
        async with self._db.begin() as conn:
            await mark_started(conn, row.tenant_id, row.id)

    async def _signal(self, row: Row[Any]) -> None:
        await self._live.control(row.tenant_id, row.id)
        if not await self._workflows.signal(row.id, row.control_seq):
            # its workflow is gone: a new one finds the cancel, ends what is left and says so
            await self._workflows.start(
                TaskRef(tenant_id=row.tenant_id, task_id=row.id, epoch=row.epoch), even_if_it_ran=True
            )
        self._signalled[row.id] = time.monotonic()

    async def _tell_if_gone(self, row: Row[Any]) -> None:
        if await self._workflows.running(row.id):
            return
        if len(self._told) > 10_000:
            self._told.clear()
        self._told.add(row.id)
        if await self._append_stalled(row.tenant_id, row.id):
            log.error("an open task has no workflow any more", extra={"task_id": row.id})

    async def _append_stalled(self, tenant_id: str, task_id: str) -> bool:
        """Whether the event is new: under the task's lock, so that a task that ends at this moment gets none."""
        here = (tasks.c.tenant_id == tenant_id, tasks.c.id == task_id)
        told = select(event_rows.c.id).where(event_rows.c.task_id == task_id, event_rows.c.type == "task.stalled")
        async with self._db.begin() as conn:
            open_now = await conn.execute(select(tasks.c.id).where(*here, tasks.c.ended_at.is_(None)).with_for_update())
            if open_now.first() is None or (await conn.execute(told.limit(1))).first() is not None:
                return False
            gone = events.Draft(TaskStalled(detail="its workflow is gone; nothing works on it any more"))
            await events.append(conn, tenant_id=tenant_id, task_id=task_id, at=datetime.now(UTC), drafts=[gone])
        return True


async def _described(handle: Any) -> tuple[WorkflowExecutionStatus | None]:
    return ((await handle.describe(rpc_timeout=PATIENCE)).status,)


async def _found(call: Awaitable[T]) -> T | tuple[()] | None:
    """What a call answers, () for nothing; None where the workflow is not there."""
    try:
        answer = await asked(call)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    return () if answer is None else answer


async def each(rows: Sequence[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do `work` for every row, a few at a time. One that fails does not keep the others from it; the first fault is
    raised at the end."""
    room = asyncio.Semaphore(_SIDE_BY_SIDE)

    async def one(row: T) -> None:
        async with room:
            await work(row)

    found = await asyncio.gather(*(one(row) for row in rows), return_exceptions=True)
    for fault in found:
        if isinstance(fault, BaseException):
            raise fault


def _ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)
