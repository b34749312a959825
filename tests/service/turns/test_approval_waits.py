"""Whole tasks that wait for a person, on real Temporal: woken within a second, ended at once."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client

from agents.contracts.run import TaskRef
from agents.contracts.task import Limits, StopReason
from services.relay.starts import Workflows
from services.relay.waking import Waker
from services.settings import Settings
from services.store.approvals import expire_due
from tests.support.approvals import asked, decide
from tests.support.scripts import ScriptedModel, says
from tests.support.team import Handle, Team, connect, finish, plan, review, working
from tests.support.turns import Parts, new_task, until
from workflows import options

NAMESPACE = "test-" + secrets.token_hex(4)
ASK = {"shell": "ask"}


@pytest.fixture
async def client(servers: Settings) -> Client:
    """A namespace of this module's own."""
    return await connect(servers, NAMESPACE)


@pytest.fixture
async def relay(parts: Parts, client: Client) -> AsyncIterator[None]:
    """What the relay does for approvals, twice a second."""
    waker = Waker(parts.db, Workflows(client, options.WORKFLOW_QUEUE))

    async def work() -> None:
        while True:
            await expire_due(parts.db)
            await waker.wake_waiting()
            await asyncio.sleep(0.5)

    task = asyncio.create_task(work())
    yield
    task.cancel()


def asks(*steps: str) -> dict[str, Any]:
    """Each of these steps runs one command and is approved by its reviewer."""
    lines: dict[str, Any] = {"planner/1.plan/1/1/m1": plan(*steps), "reviewer/1.final/1/1/m1": review("approve")}
    for step in steps:
        lines[f"executor/1.{step}/1/1/m1"] = says(("shell", {"command": f"echo {step} >> log"}))
        lines[f"executor/1.{step}/1/2/m1"] = finish()
        lines[f"reviewer/1.{step}/1/1/m1"] = review("approve")
    return lines


async def waiting(team: Team, tenant_id: str, count: int = 1) -> None:
    """Until so many calls wait."""

    async def wait() -> bool:
        return len(await asked(team.parts.db, tenant_id)) == count

    await until(wait, 60)


async def begin(team: Team, tenant_id: str, **limits: Any) -> tuple[TaskRef, Handle]:
    task = await new_task(team.parts, tenant_id, Limits(**limits), tools=ASK)
    handle = await team.start(task)
    await waiting(team, tenant_id)
    return task, handle


@pytest.mark.usefixtures("relay")
async def test_a_decision_wakes_and_other_steps_went_on(parts: Parts, client: Client, tenant_id: str) -> None:
    lines = asks("one", "two")
    lines["executor/1.two/1/1/m1"] = says(("write_file", {"path": "two/f", "content": "2"}))
    async with working(parts, client, ScriptedModel(lines)) as team:
        task, handle = await begin(team, tenant_id)

        async def only_one_waits() -> bool:
            told = await team.events(task)
            done = [e.step_id for e in told if e.data.type == "step.completed"]
            return done == ["two"] and (await team.row(task)).status == "waiting"

        await until(only_one_waits, 60)
        [approval] = await asked(parts.db, tenant_id)
        assert approval.step_id == "one"
        await decide(parts.db, approval, tenant_id, "approve")
        then = time.monotonic()

        async def runs() -> bool:
            return "exec.exited" in await team.types(task)

        await until(runs, 30)
        assert time.monotonic() - then < 5  # not the 60 s after which it would look by itself
        assert (await asyncio.wait_for(handle.result(), 60)).stop_reason is StopReason.COMPLETED
        assert (await team.types(task)).count("exec.exited") == 1


@pytest.mark.usefixtures("relay")
async def test_an_expiry_wakes(parts: Parts, client: Client, tenant_id: str) -> None:
    async with working(parts, client, ScriptedModel(asks("one"))) as team:
        task, handle = await begin(team, tenant_id, approval_s=1)
        assert (await asyncio.wait_for(handle.result(), 30)).stop_reason is StopReason.COMPLETED
        told = await team.types(task)
        assert ("approval.expired" in told, "exec.exited" in told) == (True, False)


async def test_a_cancel_while_it_waits_works_at_once(parts: Parts, client: Client, tenant_id: str) -> None:
    async with working(parts, client, ScriptedModel(asks("one"))) as team:
        task, handle = await begin(team, tenant_id)
        await team.cancel(task, handle)
        assert (await asyncio.wait_for(handle.result(), 15)).stop_reason is StopReason.CANCELLED
        told = await team.types(task)
        assert told[-1] == "task.cancelled"
        assert "approval.expired" in told  # nobody can decide it any more
        assert [a.state.value for a in await asked(parts.db, tenant_id)] == ["expired"]
        assert "exec.exited" not in told


async def test_the_deadline_comes_while_it_waits(parts: Parts, client: Client, tenant_id: str) -> None:
    async with working(parts, client, ScriptedModel(asks("one"))) as team:
        task, handle = await begin(team, tenant_id, wall_s=30)  # long enough that a busy machine comes to ask
        assert (await asyncio.wait_for(handle.result(), 60)).stop_reason is StopReason.DEADLINE
        assert (await team.types(task))[-1] == "task.failed"
        assert [a.state.value for a in await asked(parts.db, tenant_id)] == ["expired"]
