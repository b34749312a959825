"""A whole task in which an executor asks a person, on real Temporal; the stack's relay carries the answer."""

import secrets

import pytest
from temporalio.client import Client

from agents.contracts.message import MessageBody
from agents.contracts.task import Limits, StopReason
from services.ids import new_id
from services.relay.starts import Workflows
from services.relay.waking import Waker
from services.settings import Settings
from services.store import messages, task_views
from tests.support.scripts import ScriptedModel, says
from tests.support.team import connect, finish, plan, review, working
from tests.support.turns import Parts, new_task, until
from workflows import options

NAMESPACE = "ask-" + secrets.token_hex(4)


@pytest.fixture
async def client(servers: Settings) -> Client:
    """A namespace of this module's own."""
    return await connect(servers, NAMESPACE)


async def test_one_step_waits_for_a_person_and_the_other_does_not(parts: Parts, client: Client, tenant_id: str) -> None:
    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("one", "two"),
            "executor/1.one/1/1/m1": says(("ask", {"question": "Which colour?"})),
            "executor/1.one/1/2/m1": finish("blue"),
            "executor/1.two/1/1/m1": finish("two"),
            "reviewer/1.one/1/1/m1": review("approve"),
            "reviewer/1.two/1/1/m1": review("approve"),
            "reviewer/1.final/1/1/m1": review("approve"),
        }
    )
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits())
        handle = await team.start(task)

        async def other_done_and_this_waits() -> bool:
            async with parts.db.begin() as conn:
                view = await task_views.view(conn, tenant_id, task.task_id)
            return view.waiting_for == "person" and any(s.state == "completed" for s in view.steps)

        await until(other_done_and_this_waits, 60)
        async with parts.db.begin() as conn:
            [(_, question)] = await messages.page(conn, tenant_id, task.task_id, limit=5)
            body = MessageBody(text="Blue.", reply_to=question.id)
            await messages.send(conn, tenant_id, task.task_id, new_id("msg"), body)
        waker = Waker(parts.db, Workflows(client, options.WORKFLOW_QUEUE))

        async def read() -> bool:
            await waker.wake_waiting()
            async with parts.db.begin() as conn:
                return all(m.state != "sent" for _, m in await messages.page(conn, tenant_id, task.task_id, limit=5))

        await until(read, 60)
        await waker.wake_waiting()
        assert (await handle.result()).stop_reason is StopReason.COMPLETED
        said = next(r for r in model.asked if r.coordinate == "executor/1.one/1/2/m1")
        assert any("This answers your question.\nBlue." in message.content for message in said.messages)
        told = await team.types(task)
        assert told.count("steer.applied") == 1


async def test_a_cancel_ends_a_task_that_waits_for_a_person(parts: Parts, client: Client, tenant_id: str) -> None:
    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("one"),
            "executor/1.one/1/1/m1": says(("ask", {"question": "Which colour?"})),
        }
    )
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits())
        handle = await team.start(task)

        async def waits() -> bool:
            return bool((await team.row(task)).waiting_for == "person")

        await until(waits, 60)
        await team.cancel(task, handle)
        assert (await handle.result()).stop_reason is StopReason.CANCELLED
        assert (await team.row(task)).waiting_for is None
