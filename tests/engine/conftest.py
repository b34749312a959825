"""One engine for all tests here; each test has a container of its own."""

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from agents.contracts.sandbox import SandboxLimits
from services.sandbox.engine.containers import Container, Containers
from services.sandbox.supervised.client import Finished, Supervisor
from services.sandbox.supervised.messages import Order
from services.sandbox.supervisor.build import build
from tests.support.engine import HOST_IMAGE, Engine

HOST = (("/usr", "/usr"),)
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}


@dataclass
class Place:
    """Containers of one runtime, and a way to make sandboxes of them."""

    engine: Engine
    containers: Containers
    runtime: str
    made: list[str] = field(default_factory=list)

    def what(self, **changes: object) -> Container:
        """A container to start, of a new name."""
        name = f"lh-{secrets.token_hex(4)}"
        self.made.append(name)
        usual = SandboxLimits(memory_mb=256, pids=128, cpu=1.0, disk_mb=64)
        whole = Container(name, HOST_IMAGE, {"task": "t1"}, usual, binds=HOST)
        return replace(whole, **changes)  # type: ignore[arg-type]

    @asynccontextmanager
    async def sandbox(self, **changes: object) -> AsyncIterator["Sandbox"]:
        """A running one, with its controller."""
        async with self.started(self.what(**changes)) as sandbox:
            yield sandbox

    @asynccontextmanager
    async def started(self, what: Container) -> AsyncIterator["Sandbox"]:
        """One that is started here, with its controller."""
        await self.containers.start(what)
        async with self.controller(what.name) as supervisor:
            yield Sandbox(what.name, supervisor)

    @asynccontextmanager
    async def controller(self, name: str, epoch: int = 1) -> AsyncIterator[Supervisor]:
        """A controller of one that runs."""
        stream = await self.containers.attach(name)
        async with Supervisor(stream.reader, stream.writer) as supervisor:
            await supervisor.greet(epoch, resync=True)
            yield supervisor
        await stream.close()


@dataclass
class Sandbox:
    """One running container."""

    name: str
    supervisor: Supervisor

    async def sh(self, command: str, **changes: object) -> Finished:
        """Run a shell command to its end."""
        order = Order(secrets.token_hex(8), (command,), ENV, shell=True, timeout_s=60)
        return await self.supervisor.run(replace(order, **changes))  # type: ignore[arg-type]

    async def says(self, command: str) -> str:
        """What a command prints, both streams."""
        done = await self.sh(command, merge=True)
        return done.stdout.decode(errors="replace")


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine() as made:
        yield made


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("supervisor"))


@pytest.fixture(params=["runc", "runsc"])
async def place(request: pytest.FixtureRequest, engine: Engine, program: Path) -> AsyncIterator[Place]:
    outside = os.stat("/proc/self/ns/pid").st_ino
    containers = Containers(engine.client, program, outside, "tests", request.param)
    made = Place(engine, containers, request.param)
    yield made
    for name in made.made:
        await containers.destroy(name)


@pytest.fixture
async def sandbox(place: Place) -> AsyncIterator[Sandbox]:
    async with place.sandbox() as made:
        yield made
