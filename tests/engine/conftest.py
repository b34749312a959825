"""One engine for all tests here; each test has a data directory and sandboxes of its own."""

import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.contracts.sandbox import SandboxLimits, Trait
from services.sandbox.engine.backend import KINDS, EngineBackend
from services.sandbox.engine.client import EngineClient
from services.sandbox.engine.containers import Containers
from services.sandbox.engine.image import Images
from services.sandbox.home import FOLDERS, OWNED, Home
from services.sandbox.records import Meta
from services.sandbox.supervised.client import Finished, Supervisor
from services.sandbox.supervised.messages import Order
from services.sandbox.supervisor.build import build
from services.sandbox.template import Templates
from services.stack.layout import default_data_dir
from tests.support.engine import Engine

UID = 229_100


@dataclass
class Place:
    """A runner's data directory, and the backend that knows it."""

    url: str
    data: Path
    name: str
    program: Path
    owner: str = field(default_factory=lambda: secrets.token_hex(4))
    clients: list[EngineClient] = field(default_factory=list)
    held: list[Supervisor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.containers, self.backend = self.another()
        self.backend.setup()

    def another(self, url: str = "", image: str = "", **changes: object) -> tuple[Containers, EngineBackend]:
        """What the next runner on the same data has."""
        kind = replace(KINDS[self.name], **changes)  # type: ignore[arg-type]
        client = EngineClient(url or self.url, within_s=2 if url else 30)
        self.clients.append(client)
        outside = os.stat("/proc/self/ns/pid").st_ino
        shared = self.data / "shared"
        own_kernel = Trait.OWN_KERNEL in kind.traits
        containers = Containers(
            client, shared / "supervisor" / self.program.name, outside, self.owner, kind.runtime, own_kernel=own_kernel
        )
        templates = Templates(Path(os.environ.get("LONGHAUL_RUNNER_TEMPLATE_DIR") or default_data_dir() / "template"))
        images = Images(client, image, templates, shared / "etc")
        return containers, EngineBackend(kind, client, containers, images, self.program)

    def home(self, name: str = "sbx_one", **limits: object) -> Home:
        """A sandbox's folder, as the runner lays it out."""
        asked = SandboxLimits.model_validate(limits)
        meta = Meta(
            id=name,
            tenant_id="t",
            task_id="task_1",
            limits=asked,
            uid=UID,
            backend=self.name,
            created_at=datetime.now(UTC),
        )
        home = Home(self.data / name, meta)
        for folder in (home.root, *(home.root / part for part in FOLDERS)):
            folder.mkdir(mode=0o711 if folder == home.root else 0o700)
        self.backend.make(home)
        for part in OWNED:
            os.chown(home.root / part, UID, UID)
        return home

    async def start(self, home: Home, backend: EngineBackend | None = None) -> Supervisor:
        """The supervisor of a sandbox, let go of in the end."""
        found = await (backend or self.backend).start(home, 1)
        self.held.append(found)
        return found

    async def says(self, supervisor: Supervisor, command: str) -> str:
        """What a command prints, both streams."""
        return (await self.run(supervisor, command)).stdout.decode(errors="replace")

    async def run(self, supervisor: Supervisor, command: str, **changes: object) -> Finished:
        """Run a shell command to its end."""
        env = {"PATH": "/usr/bin:/bin", "HOME": "/tmp/home"}
        order = Order(secrets.token_hex(8), (command,), env, shell=True, merge=True, timeout_s=60)
        return await supervisor.run(replace(order, **changes))  # type: ignore[arg-type]

    async def close(self) -> None:
        """End everything of it."""
        for supervisor in self.held:
            await supervisor.close()
        await self.backend.reconcile(set)
        for client in self.clients:
            client.close()
        shutil.rmtree(self.data)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with Engine() as made:
        yield made


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("supervisor"))


@pytest.fixture(params=sorted(KINDS))
async def place(request: pytest.FixtureRequest, engine: Engine, program: Path) -> AsyncIterator[Place]:
    made = Place(engine.url, Path(tempfile.mkdtemp(prefix="lh-backend-")), request.param, program)
    yield made
    await made.close()
