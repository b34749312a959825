"""A worker killed under a call that cannot be undone: nobody knows how it ended, so a person is asked, and only what
the person says is done."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from temporalio.client import Client

from agents.contracts.approval import Approval
from agents.contracts.errors import LonghaulError
from agents.contracts.run import TaskRef
from agents.contracts.sandbox import ReadFile
from agents.contracts.task import Limits, StopReason
from services.relay.starts import Workflows
from services.relay.waking import Waker
from tests.fault.tally import Tally
from tests.support.approvals import asked, decide
from tests.support.scripts import ScriptedModel
from tests.support.stack import Stack
from tests.support.team import Team, connect
from tests.support.turns import Parts, new_task, until
from tests.support.workers import burst_of, spawning
from workflows import options
from workflows.names import workspace_id

pytestmark = pytest.mark.timeout(240)
WITHIN_S = 90.0


async def test_what_cannot_be_undone_is_asked_and_done_once(killed_stack: Stack, tally: Tally) -> None:
    namespace, tenant_id = f"test-{secrets.token_hex(4)}", f"t{secrets.token_hex(6)}"
    settings = killed_stack.settings("worker")
    client = await connect(settings, namespace)
    async with Parts(settings) as parts, spawning(killed_stack, namespace, "launch") as spawn, waking(parts, client):
        team = Team(parts, client, ScriptedModel({}))
        workers = [await spawn(), await spawn()]
        task = await new_task(parts, tenant_id, Limits())
        tally.lost += 1
        handle = await team.start(task)
        before = await question(parts, tenant_id, 1)
        await decide(parts.db, before, tenant_id, "approve")
        await until(lambda: holds(parts, task, "begun"), WITHIN_S)
        pid = (await burst_of(client, task))[1]
        next(worker for worker in workers if worker.pid == pid).kill()
        tally.injected += 1
        unknown = await question(parts, tenant_id, 2)
        assert (before.kind, unknown.kind) == ("call", "unknown_outcome")
        tally.unknown += 1
        await until(lambda: holds(parts, task, "launched"), WITHIN_S)  # the command outlived who had started it
        await until(lambda: one_line(parts, task), 1)
        await decide(parts.db, unknown, tenant_id, "deny")
        assert (await asyncio.wait_for(handle.result(), WITHIN_S)).stop_reason is StopReason.COMPLETED
        assert "exec.started" not in await team.types(task)  # whose end nobody knows is not told as one that is known
        assert len(await asked(parts.db, tenant_id)) == 2
        tally.lost -= 1


@asynccontextmanager
async def waking(parts: Parts, client: Client) -> AsyncIterator[None]:
    """What the stack's relay does, in the namespace of this test."""
    waker = Waker(parts.db, Workflows(client, options.WORKFLOW_QUEUE))

    async def work() -> None:
        while True:
            await waker.wake_waiting()
            await asyncio.sleep(0.5)

    task = asyncio.create_task(work())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def question(parts: Parts, tenant_id: str, count: int) -> Approval:
    """The last of so many, once it is asked."""

    async def there() -> bool:
        return len(await asked(parts.db, tenant_id)) == count

    await until(there, WITHIN_S)
    return (await asked(parts.db, tenant_id))[-1]


async def holds(parts: Parts, task: TaskRef, name: str) -> bool:
    """Whether the workspace has a file."""
    with suppress(LonghaulError):
        found, _ = await parts.runner.list_files(workspace_id(task), 100)
        return any(file.path == name for file in found)
    return False


async def one_line(parts: Parts, task: TaskRef) -> bool:
    """Whether it was launched once."""
    text = await parts.runner.read_file(workspace_id(task), ReadFile(path="launched"))
    return text.text == "one\n"
