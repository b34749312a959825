"""Runners as they are installed: a process of its own, spoken to over HTTP."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agents.contracts.sandbox import ExecStatus, SandboxSpec
from services.sandbox.client import RunnerClient
from tests.contract.sandbox.runner import RunnerProcess, ask
from tests.support.engine import Engine


@asynccontextmanager
async def runner(
    template: Path, pool: int, engine: Engine | None = None, backend: str = "docker"
) -> AsyncIterator[tuple[RunnerProcess, RunnerClient]]:
    """One that keeps `pool` sandboxes ready, of the namespace backend or of an engine."""
    place = "namespace/root" if engine is None else f"{backend}/root"
    process = RunnerProcess(place, template, engine, env={"LONGHAUL_RUNNER_POOL": str(pool)})
    try:
        process.start()
        async with process.client() as client:
            yield process, client
    finally:
        process.remove()


async def claimed(client: RunnerClient) -> str:
    """A sandbox."""
    name = f"sbx_{secrets.token_hex(6)}"
    await client.create(SandboxSpec(id=name, tenant_id="bench", task_id="bench"))
    return name


async def ran(client: RunnerClient, sandbox_id: str, command: str = "true") -> ExecStatus:
    """A command that succeeds."""
    status = await client.exec(sandbox_id, ask(command))
    assert status.exit_code == 0, status
    return status


async def first_command(client: RunnerClient) -> str:
    """From nothing to the end of the first command."""
    name = await claimed(client)
    await ran(client, name)
    return name
