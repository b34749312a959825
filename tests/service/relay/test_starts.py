import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from temporalio import workflow
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from agents.contracts.errors import LonghaulError
from agents.contracts.model import Delta
from agents.contracts.run import TaskRef
from services.relay.starts import Reconciler, Workflows
from services.settings import Settings
from services.store.database import Database
from services.store.tables import events, task_starts, tasks
from services.temporal import workflow_id
from tests.service.rooms import add_task, database, fresh_database

LONG_AGO = datetime.now(UTC) - timedelta(hours=1)


@workflow.defn(name="TaskWorkflow")
class Stub:
    """Stands for the real one: waits for a control number of 99, and tells what it got."""

    def __init__(self) -> None:
        self.got: list[int] = []

    @workflow.run
    async def run(self, ref: TaskRef) -> str:
        await workflow.wait_condition(lambda: 99 in self.got)
        return f"{ref.tenant_id} {ref.epoch} {self.got}"

    @workflow.signal(name="control")
    def control(self, control_seq: int) -> None:
        self.got.append(control_seq)


class Quiet:
    """A `Live` that only counts."""

    def __init__(self) -> None:
        self.controls: list[tuple[str, str]] = []

    async def delta(self, tenant_id: str, delta: Delta) -> None:
        raise AssertionError

    async def poke(self) -> None:
        raise AssertionError

    async def on_control(self, tenant_id: str, task_id: str, wake: object) -> None:
        raise AssertionError

    async def control(self, tenant_id: str, task_id: str) -> None:
        self.controls.append((tenant_id, task_id))


class Room(NamedTuple):
    db: Database
    client: Client
    reconciler: Reconciler
    live: Quiet
    queue: str

    async def started_at(self, task_id: str) -> datetime | None:
        async with self.db.begin() as conn:
            found = select(task_starts.c.started_at).where(task_starts.c.task_id == task_id)
            at: datetime | None = (await conn.execute(found)).scalar_one()
        return at

    async def stalled(self) -> list[str]:
        async with self.db.begin() as conn:
            found = select(events.c.task_id).where(events.c.type == "task.stalled").order_by(events.c.task_id)
            return list((await conn.execute(found)).scalars())


@pytest.fixture
async def room(owner: Settings) -> AsyncIterator[Room]:
    queue = f"test-{secrets.token_hex(4)}"
    client = await Client.connect(
        owner.temporal_address, namespace=owner.temporal_namespace, data_converter=pydantic_data_converter
    )
    live = Quiet()
    async with (
        fresh_database(owner) as settings,
        database(settings) as db,
        Worker(client, task_queue=queue, workflows=[Stub], workflow_runner=UnsandboxedWorkflowRunner()),
    ):
        yield Room(db, client, Reconciler(db, Workflows(client, queue), live), live, queue)  # type: ignore[arg-type]


async def admitted(conn: AsyncConnection, **more: object) -> str:
    """A task that has its place and no workflow yet."""
    return await add_task(conn, started=False, admitted_at=datetime.now(UTC), **more)  # type: ignore[arg-type]


async def test_a_task_admitted_just_before_a_crash_is_started(room: Room) -> None:
    async with room.db.begin() as conn:
        queued = await add_task(conn, started=False)
        ids = [await admitted(conn, tenant_id=t, epoch=e) for t, e in (("ann", 0), ("bob", 2))]
    await room.reconciler.start_missing()
    assert all([await room.started_at(task) for task in ids])
    assert await room.started_at(queued) is None, "it has no place yet"
    for task, said in zip(ids, ("ann 0 [99]", "bob 2 [99]"), strict=True):
        handle = room.client.get_workflow_handle(workflow_id(task))
        await handle.signal("control", 99)
        assert await asyncio.wait_for(handle.result(), 10) == said


async def test_a_workflow_that_runs_or_has_run_is_not_started_again(room: Room) -> None:
    async with room.db.begin() as conn:
        runs, ran = [await admitted(conn) for _ in range(2)]
    handles = {}
    for task in (runs, ran):
        ref = TaskRef(tenant_id="default", task_id=task)
        handles[task] = await room.client.start_workflow(
            "TaskWorkflow", ref, id=workflow_id(task), task_queue=room.queue
        )
    await handles[ran].signal("control", 99)
    await handles[ran].result()
    await asyncio.gather(*(room.reconciler.start_missing() for _ in range(3)))
    for task in (runs, ran):
        assert await room.started_at(task)
        newest = await room.client.get_workflow_handle(workflow_id(task)).describe()
        assert newest.run_id == handles[task].result_run_id
    await handles[runs].terminate()


async def test_temporal_away_leaves_everything_as_it_is(room: Room) -> None:
    away = await Client.connect("127.0.0.1:1", lazy=True, data_converter=pydantic_data_converter)
    async with room.db.begin() as conn:
        task = await admitted(conn)
        await add_task(conn, cancel_requested_at=LONG_AGO, control_seq=1, updated_at=LONG_AGO)
    reconciler = Reconciler(room.db, Workflows(away, room.queue), room.live)  # type: ignore[arg-type]
    for work in (
        reconciler.start_missing(),
        reconciler.tell_of_cancels(again_s=0),
        reconciler.find_stalled(idle_s=0),
    ):
        with pytest.raises(LonghaulError, match="UNAVAILABLE"):
            await work
    assert await room.started_at(task) is None
    assert await room.stalled() == []


async def test_a_cancel_is_repeated_until_the_task_ends(room: Room) -> None:
    async with room.db.begin() as conn:
        task = await admitted(conn)
        await add_task(conn)  # nobody wants this one to end
        await add_task(conn, cancel_requested_at=LONG_AGO, ended_at=LONG_AGO, control_seq=5)
    await room.reconciler.start_missing()
    async with room.db.begin() as conn:
        now = {"cancel_requested_at": datetime.now(UTC), "control_seq": 7}
        await conn.execute(update(tasks).where(tasks.c.id == task).values(now))
    for again_s in (5, 5, 0):
        await room.reconciler.tell_of_cancels(again_s=again_s)
    assert room.live.controls == [("default", task)] * 2
    async with room.db.begin() as conn:
        await conn.execute(update(tasks).where(tasks.c.id == task).values(control_seq=99))
    await room.reconciler.tell_of_cancels(again_s=0)
    handle = room.client.get_workflow_handle(workflow_id(task))
    assert await asyncio.wait_for(handle.result(), 10) == "default 0 [7, 7, 99]"


async def test_a_task_whose_workflow_is_gone_is_told_of_once_and_not_started_again(room: Room) -> None:
    async with room.db.begin() as conn:
        gone, runs, ended, cancelling = [await admitted(conn) for _ in range(4)]
    await room.reconciler.start_missing()
    for task in (gone, ended, cancelling):
        await room.client.get_workflow_handle(workflow_id(task)).terminate()
    async with room.db.begin() as conn:
        await conn.execute(text("UPDATE task_starts SET started_at = now() - interval '1 hour'"))
        await conn.execute(text("UPDATE tasks SET updated_at = now() - interval '1 hour'"))
        await conn.execute(update(tasks).where(tasks.c.id == ended).values(ended_at=LONG_AGO))
        asked = {"cancel_requested_at": LONG_AGO, "control_seq": 1}
        await conn.execute(update(tasks).where(tasks.c.id == cancelling).values(asked))
    await room.reconciler.tell_of_cancels(again_s=0)
    assert await room.stalled() == []
    again = await room.client.get_workflow_handle(workflow_id(cancelling)).describe()
    assert again.status is WorkflowExecutionStatus.RUNNING  # it finds the cancel and ends the task
    other = Reconciler(room.db, Workflows(room.client, room.queue), room.live)  # type: ignore[arg-type]
    for _ in range(2):
        await room.reconciler.find_stalled()
        await other.find_stalled(idle_s=0)
        await other.tell_of_cancels(again_s=0)
    assert await room.stalled() == [gone]
    await room.client.get_workflow_handle(workflow_id(cancelling)).terminate()
    await room.client.get_workflow_handle(workflow_id(runs)).terminate()
