"""The backends as places: sandboxes of runners."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from agents.contracts.sandbox import SandboxLimits
from services.sandbox.client import RunnerClient
from tests.attacks.places import Place, Told
from tests.contract.sandbox.runner import Box, RunnerProcess, make_box

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


class Backend:
    """A runner's sandboxes, with all limits that it holds."""

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


async def started(runner: RunnerProcess, ends: AsyncExitStack) -> Backend:
    """The backend of a runner that is started here and ended with `ends`."""
    runner.start()
    ends.callback(runner.remove)
    client = await ends.enter_async_context(runner.client())
    found = await client.capabilities()
    return Backend(client, runner.place, frozenset(found.limits))
