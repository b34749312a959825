"""Starting and waking a task's workflow. Rows are the truth: whatever fails here is done again by the reconciler."""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from agents.contracts.errors import LonghaulError
from agents.contracts.run import TaskRef
from services.store import tasks
from services.store.database import Database
from services.temporal import start_task, workflow_id
from workflows.options import WORKFLOW_QUEUE
from workflows.ports import Live

_PATIENCE = timedelta(seconds=2)
# a lazy client that cannot connect raises a bare RuntimeError
_AWAY = (RPCError, RuntimeError, OSError, TimeoutError)

log = logging.getLogger(__name__)


class Workflows:
    """Tells Temporal of accepted and cancelled tasks, beside the requests that did so."""

    def __init__(self, client: Client, db: Database, live: Live) -> None:
        self._client = client
        self._db = db
        self._live = live
        self._under_way: set[asyncio.Task[None]] = set()

    def start_soon(self, ref: TaskRef) -> None:
        """Start the task's workflow; returns at once."""
        self._soon(self._start(ref))

    def wake_soon(self, ref: TaskRef, control_seq: int) -> None:
        """Tell the task's workflow and its running bursts to look at their controls; returns at once."""
        self._soon(self._signal(ref, control_seq))
        self._soon(self._live.control(ref.tenant_id, ref.task_id))

    async def close(self) -> None:
        """Wait for what is under way: seconds at most."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_PATIENCE.total_seconds())

    def _soon(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _start(self, ref: TaskRef) -> None:
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                await self._start_once(ref)
        except (*_AWAY, LonghaulError) as error:
            log.info("a workflow is left to the reconciler", extra={"task_id": ref.task_id, "why": repr(error)})

    async def _start_once(self, ref: TaskRef) -> None:
        await start_task(self._client, ref, WORKFLOW_QUEUE, _PATIENCE)
        async with self._db.begin() as conn:
            await tasks.mark_started(conn, ref.tenant_id, ref.task_id)

    async def _signal(self, ref: TaskRef, control_seq: int) -> None:
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                handle = self._client.get_workflow_handle(workflow_id(ref.task_id))
                await handle.signal("control", control_seq, rpc_timeout=_PATIENCE)
        except _AWAY as error:
            log.info("a signal is left to the reconciler", extra={"task_id": ref.task_id, "why": repr(error)})
