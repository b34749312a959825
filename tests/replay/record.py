"""Record histories of real tasks for `test_histories.py`: ``python -m tests.replay.record DATA_DIR``, of a stack.

Records are added when workflow code changes its commands; old ones stay as long as such workflows may still run.
"""

import asyncio
import re
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.ids import Place, Role
from agents.contracts.message import MessageBody
from agents.contracts.run import TaskRef
from agents.contracts.task import Limits
from services.ids import new_id
from services.settings import Settings
from services.stack.layout import DataDir
from services.store import mail, messages
from tests.support.approvals import asked, decide
from tests.support.scripts import ScriptedModel, says
from tests.support.stack import Stack
from tests.support.team import Team, connect, finish, impatient_server, plan, review, working
from tests.support.turns import Parts, new_task, until

HISTORIES = Path(__file__).parent / "histories"

WHOLE = {
    "planner/1.plan/1/1/m1": plan("one", "two"),
    "executor/1.one/1/1/m1": finish("one"),
    "executor/1.two/1/1/m1": finish("two"),
    "reviewer/1.one/1/1/m1": review("revise", "more"),
    "executor/1.one/2/1/m1": finish("one again"),
    "reviewer/1.one/2/1/m1": review("approve"),
    "reviewer/1.two/1/1/m1": review("approve"),
    "reviewer/1.final/1/1/m1": review("approve"),
}
REPLAN = {
    "planner/1.plan/1/1/m1": plan("a", "b", b={"depends_on": ["a"]}),
    "executor/1.a/1/1/m1": finish("a"),
    "reviewer/1.a/1/1/m1": review("approve"),
    "executor/1.b/1/1/m1": finish("b"),
    "reviewer/1.b/1/1/m1": review("replan", "not enough"),
    "planner/1.plan/2/1/m1": plan("a", "c"),
    "executor/2.c/1/1/m1": finish("c"),
    "reviewer/2.c/1/1/m1": review("approve"),
    "reviewer/2.final/1/1/m1": review("approve"),
}
LONG = {
    "planner/1.plan/1/1/m1": plan("only"),
    "executor/1.only/1/1/m1": says(("shell", {"command": "sleep 60", "timeout_s": 100})),
}


ASKING = {
    "planner/1.plan/1/1/m1": plan("only"),
    "executor/1.only/1/1/m1": says(("shell", {"command": "echo hello"})),
    "executor/1.only/1/2/m1": finish("only"),
    "reviewer/1.only/1/1/m1": review("approve"),
}
QUESTION = {
    "planner/1.plan/1/1/m1": plan("only"),
    "executor/1.only/1/1/m1": says(("ask", {"question": "Which colour?", "timeout_s": 3_600})),
    "executor/1.only/1/2/m1": finish("only"),
    "reviewer/1.only/1/1/m1": review("approve"),
}
LONG_HISTORY = 30
"""Events after which a server is made to suggest a new history."""


async def save(team: Team, workflow_id: str, name: str, run_id: str | None = None) -> None:
    """Keep the history of a workflow's last run, or of the run named."""
    history = await team.client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
    text = re.sub(r'"\d+@[^"]*"', '"recorder"', history.to_json())  # process and host
    (HISTORIES / f"{name}.json").write_text(text)


async def record(parts: Parts, namespace: str, settings: Settings) -> None:
    """One task of each kind."""
    client = await connect(settings, namespace)
    await record_approval(parts, client)
    await record_asked(parts, client)
    await record_continued(parts)
    away = ScriptedModel({"planner/1.plan/1/1/m1": LonghaulError(ErrorCode.ENGINE_UNAVAILABLE, "down")})
    for name, model in (("whole", ScriptedModel(WHOLE)), ("replan", ScriptedModel(REPLAN)), ("outage", away)):
        async with working(parts, client, model) as team:
            task = await new_task(parts, "trecord", Limits())
            handle = await team.start(task)
            if name == "outage":
                await asyncio.sleep(4)
                for place, line in WHOLE.items():
                    model.say(place, line)
            await handle.result()
            await save(team, handle.id, f"task-{name}")
            await save(team, f"agent/{task.task_id}/0/planner/1.plan/1", f"agent-{name}")
    async with working(parts, client, ScriptedModel(LONG)) as team:
        task = await new_task(parts, "trecord", Limits())
        handle = await team.start(task)
        await asyncio.sleep(5)
        await team.cancel(task, handle)
        await handle.result()
        await save(team, handle.id, "task-cancelled")
        await save(team, f"agent/{task.task_id}/0/executor/1.only/1", "agent-cancelled")
        task = await new_task(parts, "trecord", Limits(wall_s=4))
        handle = await team.start(task)
        await handle.result()
        await save(team, handle.id, "task-deadline")


async def record_approval(parts: Parts, client: Client) -> None:
    """An agent that waits until a person has decided, woken as the relay does."""
    async with working(parts, client, ScriptedModel(dict(ASKING))) as team:
        tenant = "t" + secrets.token_hex(4)
        task = await new_task(parts, tenant, Limits(), tools={"shell": "ask"})
        handle = await team.start(task)
        await until(lambda: asked(parts.db, tenant), 30)
        await asyncio.sleep(1)  # the burst has ended, the agent waits
        [question] = await asked(parts.db, tenant)
        await decide(parts.db, question, tenant, "approve")
        agent = f"agent/{task.task_id}/0/executor/1.only/1"
        await team.client.get_workflow_handle(agent).signal("wake", 1)
        await handle.result()
        await save(team, handle.id, "task-approval")
        await save(team, agent, "agent-approval")


async def record_asked(parts: Parts, client: Client) -> None:
    """An agent that waits until a person has answered, woken as the relay does."""
    async with working(parts, client, ScriptedModel(dict(QUESTION))) as team:
        task = await new_task(parts, "t" + secrets.token_hex(4), Limits())
        handle = await team.start(task)
        await until(lambda: open_question(parts, task), 30)
        await asyncio.sleep(1)  # the burst has ended, the agent waits
        question = await open_question(parts, task)
        async with parts.db.begin() as conn:
            body = MessageBody(text="Blue.", reply_to=question)
            await messages.send(conn, task.tenant_id, task.task_id, new_id("msg"), body)
        agent = Place(task_id=task.task_id, role=Role.EXECUTOR, step="only")
        async with parts.db.begin() as conn:
            await mail.deliver(conn, task.tenant_id, agent.agent_id, datetime.now(UTC))
        name = f"agent/{task.task_id}/0/executor/1.only/1"
        await team.client.get_workflow_handle(name).signal("wake", 1)
        await handle.result()
        await save(team, handle.id, "task-asked")
        await save(team, name, "agent-asked")


async def open_question(parts: Parts, task: TaskRef) -> str | None:
    """The question that a task's agent waits with."""
    async with parts.db.begin() as conn:
        page = await messages.page(conn, task.tenant_id, task.task_id, limit=5)
    return next((message.id for _, message in page if message.kind == "question"), None)


async def last_run(client: Client, workflow_id: str) -> str | None:
    """A workflow's last run, once there is one."""
    try:
        return (await client.get_workflow_handle(workflow_id).describe()).run_id
    except RPCError:
        return None


async def continued(client: Client, workflow_id: str, run_id: str | None) -> bool:
    """Whether the workflow goes on in another run than this."""
    return await last_run(client, workflow_id) != run_id


async def record_continued(parts: Parts) -> None:
    """Histories that go on in new ones: a planner's whose model is away, and its task's."""
    model = ScriptedModel({"planner/1.plan/1/1/m1": LonghaulError(ErrorCode.ENGINE_UNAVAILABLE, "down")})
    async with impatient_server(LONG_HISTORY) as client, working(parts, client, model) as team:
        task = await new_task(parts, "trecord", Limits())
        handle = await team.start(task)
        planner = f"agent/{task.task_id}/0/planner/1.plan/1"
        await until(lambda: last_run(client, planner), 30)
        first = await last_run(client, planner)
        await until(lambda: continued(client, planner, first), 60)
        for place, line in REPLAN.items():
            model.say(place, line)
        await handle.result()
        await save(team, handle.id, "task-continued", handle.first_execution_run_id)
        await save(team, handle.id, "task-continuation")
        await save(team, planner, "agent-continued", first)
        await save(team, planner, "agent-continuation")


async def main() -> None:
    """Record."""
    stack = Stack(Path(sys.argv[1]))
    stack.data = DataDir(Path(sys.argv[1]))
    settings = stack.settings("worker")
    HISTORIES.mkdir(exist_ok=True)
    async with Parts(settings) as parts:
        await record(parts, "record-" + secrets.token_hex(3), settings)


if __name__ == "__main__":
    asyncio.run(main())
