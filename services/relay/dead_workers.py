"""Workers that have died: what they had in hand is given to others at once, not only when its heartbeats are missed.

Temporal tells who has polled for bursts; the kernel tells which of these processes is gone, so one that is merely slow
is never taken for dead. Each activity that a dead one had is failed by its name, and Temporal tries it again elsewhere.
Where nothing can be known (another host, a worker that never polled the present server) the heartbeat decides.
"""

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecution
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from services import identity
from services.relay.starts import each
from services.temporal import PATIENCE, asked
from workflows.options import BURST_QUEUE

log = logging.getLogger(__name__)

_AGAIN_AFTER = timedelta(milliseconds=50)

WATCH_S = 15.0
"""A dead one is looked at for so long: its last polls may still be open at the server and take what was just freed."""


class DeadWorkers:
    """Looks for them. One round is `release`, to be repeated."""

    def __init__(self, client: Client, gone: Callable[[str], bool] = identity.gone) -> None:
        self._client = client
        self._gone = gone
        self._since: dict[str, float] = {}
        """The dead ones that the server still names, and since when that is known (`time.monotonic`)."""

    async def release(self) -> bool:
        """Give away what newly dead workers had in hand."""
        now = time.monotonic()
        gone = [name for name in await self._pollers() if self._gone(name)]
        self._since = {name: self._since.get(name, now) for name in gone}
        dead = {name for name, since in self._since.items() if now - since < WATCH_S}
        if dead:
            running = [run async for run in self._client.list_workflows('ExecutionStatus="Running"')]
            await each([(run, dead) for run in running], self._release)
        return False

    async def _pollers(self) -> set[str]:
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace,
            task_queue=TaskQueue(name=BURST_QUEUE),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
        answer = await asked(self._client.workflow_service.describe_task_queue(request, timeout=PATIENCE))
        return {poller.identity for poller in answer.pollers}

    async def _release(self, what: tuple[WorkflowExecution, set[str]]) -> None:
        run, dead = what
        handle = self._client.get_workflow_handle(run.id, run_id=run.run_id)
        try:
            described = await handle.describe(rpc_timeout=PATIENCE)
            for activity in described.raw_description.pending_activities:
                if activity.last_worker_identity in dead and _is_under_way(activity):
                    await self._fail(run, activity)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it ended meanwhile
                raise

    async def _fail(self, run: WorkflowExecution, activity: PendingActivityInfo) -> None:
        handle = self._client.get_async_activity_handle(
            workflow_id=run.id, run_id=run.run_id, activity_id=activity.activity_id
        )
        why = ApplicationError("its worker died", type="WORKER_DIED", next_retry_delay=_AGAIN_AFTER)
        await handle.fail(why, rpc_timeout=PATIENCE)
        found = {"workflow": run.id, "activity": activity.activity_type.name, "worker": activity.last_worker_identity}
        log.warning("a worker died: its activity goes to another", extra=found)


def _is_under_way(activity: PendingActivityInfo) -> bool:
    states = PendingActivityState
    return activity.state in (
        states.PENDING_ACTIVITY_STATE_STARTED,
        states.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED,
    )
