"""Workers with hardly any slots: everything waits its turn, nothing for ever."""

import asyncio
import secrets

import pytest
from temporalio.client import Client

from agents.contracts.task import Limits, StopReason
from services.settings import Settings
from services.worker.run import Slots
from tests.support.scripts import ScriptedModel, says
from tests.support.team import connect, finish, plan, review, working
from tests.support.turns import Parts, new_task, until

ONE = Slots(bursts=1, tasks=1, long=1)
STEPS = ("a", "b", "c", "d")


@pytest.fixture
async def client(servers: Settings) -> Client:
    """A namespace of this test's own."""
    return await connect(servers, "test-" + secrets.token_hex(4))


async def test_one_slot_of_each_kind_is_enough(parts: Parts, client: Client, tenant_id: str) -> None:
    model = ScriptedModel({"planner/1.plan/1/1/m1": plan(*STEPS), "reviewer/1.final/1/1/m1": review("approve")})
    for step in STEPS:
        model.say(f"executor/1.{step}/1/1/m1", says(("shell", {"command": f"sleep 0.2; echo > {step}"})))
        model.say(f"executor/1.{step}/1/2/m1", finish())
        model.say(f"reviewer/1.{step}/1/1/m1", review("approve"))
    async with working(parts, client, model, ONE) as team:
        tasks = [await new_task(parts, tenant_id, Limits(), checks=[f"cat {' '.join(STEPS)}"]) for _ in range(2)]
        handles = [await team.start(task) for task in tasks]
        ends = await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), 100)
    assert [end.stop_reason for end in ends] == [StopReason.COMPLETED] * 2


async def test_checks_that_take_long_keep_nobody_from_ending(parts: Parts, client: Client, tenant_id: str) -> None:
    model = ScriptedModel({"planner/1.plan/1/1/m1": plan("only"), "executor/1.only/1/1/m1": finish()})
    async with working(parts, client, model, ONE) as team:
        slow = await new_task(parts, tenant_id, Limits(), checks=["sleep 600"])
        slow_handle = await team.start(slow)

        async def checking() -> bool:
            return "exec.started" in await team.types(slow)

        await until(checking, 60)
        other = await new_task(parts, tenant_id, Limits())
        handle = await team.start(other)

        async def begun() -> bool:
            return "task.started" in await team.types(other)

        await until(begun, 30)
        await team.cancel(other, handle)
        assert (await asyncio.wait_for(handle.result(), 30)).stop_reason is StopReason.CANCELLED
        assert (await team.row(slow)).ended_at is None
        await team.cancel(slow, slow_handle)
        assert (await asyncio.wait_for(slow_handle.result(), 30)).stop_reason is StopReason.CANCELLED
