"""The backends as places: the runner's own sandboxes, and containers of an engine."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agents.contracts.sandbox import SandboxLimits
from services.sandbox.client import RunnerClient
from services.sandbox.engine.containers import Containers
from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.messages import LinkLost, Order
from tests.attacks.places import Place, Told
from tests.contract.sandbox.runner import Box, RunnerProcess, make_box
from tests.engine.conftest import ENV
from tests.engine.conftest import Place as EnginePlace
from tests.support.engine import Engine

ASKED = {"memory_mb": 256, "pids": 128, "cpu": 0.5, "disk_mb": 64}


@dataclass
class RunnerPlace:
    """A sandbox of the runner."""

    box: Box
    backend: str
    limits: frozenset[str]

    async def run(self, command: str, timeout_s: float) -> Told:
        """Run it as an agent's command is run."""
        status = await self.box.run(command, timeout_s=timeout_s)
        return Told(status.reason or "", status.output)


@dataclass
class ContainerPlace:
    """A container with its supervisor."""

    supervisor: Supervisor
    backend: str
    limits: frozenset[str] = frozenset(ASKED)

    async def run(self, command: str, timeout_s: float) -> Told:
        """Run it through the supervisor."""
        order = Order(secrets.token_hex(8), (command,), ENV, shell=True, merge=True, timeout_s=timeout_s, window=0)
        try:
            async with asyncio.timeout(timeout_s + 30):
                done = await self.supervisor.kept(await self.supervisor.start(order))
        except (LinkLost, TimeoutError):
            return Told("sandbox ended", "")
        return Told(done.entry.reason.name.lower(), done.stdout.decode(errors="replace"))


class RunnerBackend:
    """The runner's sandboxes, as root or as an ordinary user."""

    def __init__(self, client: RunnerClient, name: str, limits: frozenset[str]) -> None:
        self.name = name
        self._client = client
        self._limits = limits

    @asynccontextmanager
    async def place(self, allow: tuple[str, ...] = ()) -> AsyncIterator[Place]:
        """A fresh sandbox, which may reach these hosts."""
        asked = {name: value for name, value in ASKED.items() if name in self._limits}
        limits = SandboxLimits.model_validate(asked).model_dump()
        box = await make_box(self._client, limits=limits, network={"allow": allow})
        try:
            yield RunnerPlace(box, self.name, self._limits)
        finally:
            await self._client.destroy(box.id)


class ContainerBackend:
    """An engine's containers."""

    def __init__(self, engine: Engine, containers: Containers, name: str, held: frozenset[str]) -> None:
        self.name = name
        self._place = EnginePlace(engine, containers, name)
        self._held = held

    @asynccontextmanager
    async def place(self, allow: tuple[str, ...] = ()) -> AsyncIterator[Place]:
        """A fresh container; no attack on the network is meant for one yet."""
        assert not allow
        limits = SandboxLimits.model_validate(ASKED)
        async with AsyncExitStack() as ends:
            what = self._place.what(limits=limits)
            ends.push_async_callback(self._place.containers.destroy, what.name)
            sandbox = await ends.enter_async_context(self._place.started(what))
            yield ContainerPlace(sandbox.supervisor, self.name, self._held)


Backend = RunnerBackend | ContainerBackend


async def runner_backend(runner: RunnerProcess, identity: str, ends: AsyncExitStack) -> RunnerBackend:
    """The backend of a runner that is started here and ended with `ends`."""
    runner.start()
    ends.callback(runner.remove)
    client = await ends.enter_async_context(runner.client())
    found = await client.capabilities()
    return RunnerBackend(client, f"namespace/{identity}", frozenset(found.limits))


def container_backends(engine: Engine, program: Path, outside: int) -> list[ContainerBackend]:
    """Docker's and gVisor's, as if both held every limit: what one does not hold shows as escaped."""
    made = []
    for name, runtime in (("docker", "runc"), ("gvisor", "runsc")):
        containers = Containers(engine.client, program, outside, "attacks", runtime)
        made.append(ContainerBackend(engine, containers, name, frozenset(ASKED)))
    return made
