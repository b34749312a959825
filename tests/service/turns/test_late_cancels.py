"""A cancel that reaches an activity too late: it ends by itself, as if nobody had asked. Nothing may follow it."""

import asyncio
import secrets
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError

from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Place, Role
from agents.contracts.run import AgentRef, BurstEnd, BurstReason, Finish, RoundStart, TaskEnd, TaskRef, TaskStart
from agents.contracts.task import Limits, StopReason
from services.settings import Settings
from services.worker.run import Activity, build, run_until
from tests.support.team import connect
from workflows import options

TASK = TaskRef(tenant_id="t1", task_id="task_late0001")
PLACE = Place(task_id=TASK.task_id, role=Role.EXECUTOR, step="s1")


class Deaf:
    """Activities that are slow to end and hear of no cancel."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.working = asyncio.Event()

    async def _work(self, name: str) -> None:
        self.asked.append(name)
        self.working.set()
        work = asyncio.ensure_future(asyncio.sleep(2.5))
        while not work.done():
            activity.heartbeat()
            try:
                await asyncio.wait({work}, timeout=0.5)
            except asyncio.CancelledError:
                continue

    @activity.defn(name="begin_task")
    async def begin_task(self, task: TaskRef) -> TaskStart:
        """A task whose time is nearly up."""
        return TaskStart(limits=Limits(), has_checks=False, deadline_s=1.0)

    @activity.defn(name="prepare_workspace")
    async def prepare_workspace(self, task: TaskRef) -> None:
        """Outlives the deadline."""
        await self._work("prepare_workspace")

    @activity.defn(name="open_round")
    async def open_round(self, start: RoundStart) -> None:
        """What would follow."""
        self.asked.append("open_round")

    @activity.defn(name="finish_task")
    async def finish_task(self, finish: Finish) -> TaskEnd:
        """The end."""
        return finish.end

    @activity.defn(name="run_turns")
    async def run_turns(self, ref: AgentRef) -> BurstEnd:
        """A burst that reaches its own limit while the cancel is on its way."""
        await self._work("run_turns")
        return BurstEnd(reason=BurstReason.LIMIT, turns=1)


@pytest.fixture
async def client(servers: Settings) -> Client:
    """A namespace of this module's own."""
    return await connect(servers, "test-" + secrets.token_hex(4))


async def run(client: Client, deaf: Deaf, workflow: str, argument: Any, result: type[Any], *, cancel: bool) -> Any:
    """What the workflow comes to."""
    stop = asyncio.Event()
    of_task: list[Activity] = [deaf.begin_task, deaf.prepare_workspace, deaf.open_round, deaf.finish_task]
    workers = asyncio.create_task(run_until(build(client, [deaf.run_turns], of_task), stop))
    try:
        handle = await client.start_workflow(
            workflow,
            argument,
            id=secrets.token_hex(8),
            task_queue=options.WORKFLOW_QUEUE,
            result_type=result,
            execution_timeout=timedelta(seconds=30),
        )
        if cancel:
            await deaf.working.wait()
            await handle.cancel()
        return await handle.result()
    finally:
        stop.set()
        await workers


async def test_a_deadline_that_an_activity_outlives_is_the_end(client: Client) -> None:
    deaf = Deaf()
    end = await run(client, deaf, "TaskWorkflow", TASK, TaskEnd, cancel=False)
    assert (end.stop_reason, end.error.code) == (StopReason.DEADLINE, ErrorCode.DEADLINE_EXCEEDED)
    assert deaf.asked == ["prepare_workspace"]


async def test_a_cancelled_agent_begins_no_other_burst(client: Client) -> None:
    deaf = Deaf()
    ref = AgentRef(tenant_id="t1", place=PLACE, round=1)
    with pytest.raises(WorkflowFailureError):
        await run(client, deaf, "AgentWorkflow", ref, BurstEnd, cancel=True)
    assert deaf.asked == ["run_turns"]
