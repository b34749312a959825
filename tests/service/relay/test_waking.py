import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from sqlalchemy import insert, update
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from agents.contracts.ids import Place, Role
from agents.contracts.run import AgentOutcome, AgentRef, BurstEnd, BurstReason
from services.relay.starts import Workflows
from services.relay.waking import Waker
from services.settings import Settings
from services.store.database import Database
from services.store.tables import agents, tasks
from tests.service.rooms import add_task, database, fresh_database
from tests.support.team import connect
from tests.support.turns import until
from workflows import options
from workflows.agent import AgentWorkflow
from workflows.names import child_id

NAMESPACE = "waking-" + secrets.token_hex(4)


class Bursts:
    """Bursts that end as they are told."""

    def __init__(self) -> None:
        self.ends: list[BurstReason] = []
        self.begun = 0
        self.gate = asyncio.Event()
        self.gate.set()

    @activity.defn(name="run_turns")
    async def run_turns(self, ref: AgentRef) -> BurstEnd:
        self.begun += 1
        await self.gate.wait()
        return BurstEnd(reason=self.ends.pop(0), turns=0)


class Room(NamedTuple):
    db: Database
    client: Client
    bursts: Bursts
    waker: Waker

    async def agent(self, waiting_for: str | None, *, unread: int = 0, **task: Any) -> AgentRef:
        """A waiting agent (running for None)."""
        now = datetime.now(UTC)
        async with self.db.begin() as conn:
            place = Place(task_id=await add_task(conn, **task), role=Role.EXECUTOR, step="s1")
            row = {
                "id": place.agent_id,
                "tenant_id": "default",
                "task_id": place.task_id,
                "epoch": 0,
                "role": place.role,
                "revision": 1,
                "step": "s1",
                "round": 1,
                "state": "waiting" if waiting_for else "running",
                "waiting_for": waiting_for,
                "activity": "",
                "activity_at": now,
                "mail_sent": unread,
                "created_at": now,
            }
            await conn.execute(insert(agents).values(row))
        return AgentRef(tenant_id="default", place=place, round=1)

    async def start(self, ref: AgentRef) -> WorkflowHandle[Any, AgentOutcome]:
        """Its workflow."""
        return await self.client.start_workflow(
            "AgentWorkflow", ref, id=child_id(ref), task_queue=options.WORKFLOW_QUEUE, result_type=AgentOutcome
        )


@pytest.fixture
async def room(owner: Settings) -> AsyncIterator[Room]:
    client = await connect(owner, NAMESPACE)
    bursts = Bursts()
    agent = Worker(
        client,
        task_queue=options.WORKFLOW_QUEUE,
        workflows=[AgentWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    burst = Worker(client, task_queue=options.BURST_QUEUE, activities=[bursts.run_turns])
    async with fresh_database(owner) as settings, database(settings) as db, agent, burst:
        yield Room(db, client, bursts, Waker(db, Workflows(client, options.WORKFLOW_QUEUE)))


@pytest.mark.parametrize("reason", [BurstReason.ASKED, BurstReason.NEEDS_APPROVAL])
async def test_a_wait_ends_by_a_wake(room: Room, reason: BurstReason) -> None:
    room.bursts.ends = [reason, BurstReason.FINISHED]
    handle = await room.start(await room.agent("person", unread=1))
    await until(lambda: room.bursts.begun == 1)
    await asyncio.sleep(0.5)
    assert room.bursts.begun == 1, "nobody woke it"
    await room.waker.wake_waiting()
    assert (await asyncio.wait_for(handle.result(), 10)).reason is BurstReason.FINISHED


async def test_a_wake_that_comes_while_a_burst_ends_is_not_lost(room: Room) -> None:
    room.bursts.ends = [BurstReason.ASKED, BurstReason.FINISHED]
    room.bursts.gate.clear()
    handle = await room.start(await room.agent("person", unread=1))
    await until(lambda: room.bursts.begun == 1)
    await room.waker.wake_waiting()
    room.bursts.gate.set()
    assert (await asyncio.wait_for(handle.result(), 10)).reason is BurstReason.FINISHED


async def test_only_those_are_woken_for_whom_something_is_there(room: Room) -> None:
    quiet = [
        await room.agent("person"),
        await room.agent("engine", unread=1),  # an engine that is down does not come back by mail
        await room.agent(None, unread=1),
        await room.agent("person", unread=1, ended_at=datetime.now(UTC)),
    ]
    [woken, gone] = [await room.agent("agent", unread=1) for _ in range(2)]
    for ref in (*quiet, woken):
        room.bursts.ends.append(BurstReason.ASKED)
        await room.start(ref)
    await until(lambda: room.bursts.begun == 5)
    room.bursts.ends.append(BurstReason.FINISHED)
    await room.waker.wake_waiting()  # `gone` has no workflow, and keeps nobody from being woken
    assert gone
    result = room.client.get_workflow_handle(child_id(woken)).result()
    await asyncio.wait_for(result, 10)
    assert room.bursts.begun == 6
    async with room.db.begin() as conn:
        await conn.execute(update(tasks).values(ended_at=datetime.now(UTC)))
    for ref in quiet:
        await room.client.get_workflow_handle(child_id(ref)).terminate()
