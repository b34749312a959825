"""Worker processes: killed, stopped, replaced."""

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from agents.contracts.task import Limits, StopReason
from services.relay.dead_workers import DeadWorkers
from tests.support.scripts import ScriptedModel
from tests.support.stack import Stack
from tests.support.team import Team, connect
from tests.support.turns import Parts, new_task, until
from tests.support.workers import Spawn, burst_of, spawning
from workflows.names import workspace_id
from workflows.options import HEARTBEAT_TIMEOUT


@pytest.fixture
def namespace() -> str:
    """Where only this test's workers look."""
    return "test-" + secrets.token_hex(4)


@pytest.fixture
async def spawn(stack: Stack, namespace: str) -> AsyncIterator[Spawn]:
    """Starts a worker process; all are gone at the end."""
    async with spawning(stack, namespace) as start:
        yield start


async def running_task(parts: Parts, team: Team, tenant_id: str) -> tuple[Any, Any]:
    """A task whose slow command has begun."""
    task = await new_task(parts, tenant_id, Limits())
    handle = await team.start(task)

    async def begun() -> bool:
        return "tool.called" in [e.data.type for e in await team.events(task) if e.step_id == "only"]

    await until(begun, 60)
    await asyncio.sleep(0.7)
    return task, handle


async def assert_ran_once(team: Team, task: Any, handle: Any) -> None:
    assert (await asyncio.wait_for(handle.result(), 60)).stop_reason is StopReason.COMPLETED
    told = [e.data for e in await team.events(task)]
    [exited] = [e for e in told if e.type == "exec.exited"]
    assert exited.exit_code == 0
    assert 5_500 < exited.duration_ms < 9_000  # one run, from its beginning to its end
    assert [e.type for e in told].count("model.called") == 4
    with pytest.raises(Exception, match="SANDBOX"):
        await team.parts.runner.list_files(workspace_id(task), 1)


@pytest.mark.timeout(200)
async def test_a_killed_worker_is_replaced_and_nothing_is_done_twice(
    parts: Parts, stack: Stack, spawn: Spawn, namespace: str, tenant_id: str
) -> None:
    client = await connect(stack.settings("worker"), namespace)
    first, second = await spawn(), await spawn()
    team = Team(parts, client, ScriptedModel({}))
    task, handle = await running_task(parts, team, tenant_id)
    first.kill()  # it may or may not have been the one that waits: kill the other after it was replaced
    third = await spawn()
    await asyncio.sleep(1)
    second.kill()
    await assert_ran_once(team, task, handle)
    assert third.returncode is None


@pytest.mark.timeout(200)
async def test_what_a_dead_worker_had_goes_to_another_before_its_heartbeats_are_missed(
    parts: Parts, stack: Stack, spawn: Spawn, namespace: str, tenant_id: str
) -> None:
    client = await connect(stack.settings("worker"), namespace)
    workers = [await spawn(), await spawn()]
    team = Team(parts, client, ScriptedModel({}))
    task, handle = await running_task(parts, team, tenant_id)
    held, pid = await burst_of(client, task)
    dead_workers = DeadWorkers(client)
    await dead_workers.release()
    assert (await burst_of(client, task))[0].attempt == held.attempt  # who lives keeps what it has
    begun = time.monotonic()
    next(worker for worker in workers if worker.pid == pid).kill()
    while (found := await burst_of(client, task))[0].attempt == held.attempt or found[1] == pid:
        await dead_workers.release()
        assert time.monotonic() - begun < 30
        await asyncio.sleep(0.1)
    beats = (held.last_heartbeat_time or held.last_started_time).ToDatetime(UTC)
    assert datetime.now(UTC) < beats + HEARTBEAT_TIMEOUT, "only the missing heartbeats told"
    await assert_ran_once(team, task, handle)


@pytest.mark.timeout(200)
async def test_a_stopped_worker_drains_and_its_command_goes_on(
    parts: Parts, stack: Stack, spawn: Spawn, namespace: str, tenant_id: str
) -> None:
    client = await connect(stack.settings("worker"), namespace)
    first = await spawn()
    team = Team(parts, client, ScriptedModel({}))
    task, handle = await running_task(parts, team, tenant_id)
    await spawn()
    first.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(first.wait(), 10) == 0
    await assert_ran_once(team, task, handle)
