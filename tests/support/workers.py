"""Worker processes of a test's own, in a namespace of their own, so that the stack's workers take nothing of them."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client

from agents.contracts.run import TaskRef
from services.stack import ours
from services.stack.layout import CHECKOUT
from tests.support.stack import Stack

Spawn = Callable[[], Awaitable[asyncio.subprocess.Process]]


@asynccontextmanager
async def spawning(stack: Stack, namespace: str, play: str = "slow") -> AsyncIterator[Spawn]:
    """Starts workers that play one of the scripts of `tests.support.worker_process`; all are gone at the end."""
    env = ours.environment(stack.context(), "worker", stack.template, {})
    env = {**os.environ, **env, "LONGHAUL_TEMPORAL_NAMESPACE": namespace}
    started: list[asyncio.subprocess.Process] = []

    async def start() -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "tests.support.worker_process", play]
        started.append(await asyncio.create_subprocess_exec(*command, cwd=CHECKOUT, env=env))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def burst_of(client: Client, task: TaskRef) -> tuple[Any, int]:
    """The executor's burst as the server knows it, and the process that has it."""
    described = await client.get_workflow_handle(f"agent/{task.task_id}/0/executor/1.only/1").describe()
    (activity,) = described.raw_description.pending_activities
    return activity, int(activity.last_worker_identity.partition("@")[0])
