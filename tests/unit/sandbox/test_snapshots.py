"""The runner's snapshots over its HTTP face, in this process; no command runs. See also tests/contract/sandbox."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp.test_utils import TestServer

from agents.contracts.errors import ErrorCode, Fenced, LonghaulError
from agents.contracts.sandbox import Capabilities, Owner, SandboxSpec, WriteFile
from services.sandbox.app import Routes, build_app
from services.sandbox.backend import Backend
from services.sandbox.client import RunnerClient
from services.sandbox.execs import Execs
from services.sandbox.home import Home
from services.sandbox.intents import Intents
from services.sandbox.making import Maker
from services.sandbox.pool import Pool
from services.sandbox.quality import Quality
from services.sandbox.sandboxes import Sandboxes
from services.sandbox.snapshots import Snapshots
from services.sandbox.supervised.client import Supervisor
from services.sandbox.template import Laid
from services.snapshots.shelf import FolderShelf
from services.storage import Storage
from tests.support.trees import fill, state

OWNER = Owner(agent_id="agent_1", agent_fence=1, sandbox_fence=1)
READY = Capabilities(backend="nothing", ready=True, limits=())


class Nothing:
    """A backend that runs nothing."""

    name = "nothing"

    def setup(self) -> None: ...

    def capabilities(self) -> Capabilities:
        return READY

    def make(self, home: Home) -> None: ...

    async def find(self, home: Home, epoch: int) -> Supervisor | None:
        return None

    async def start(self, home: Home, epoch: int) -> Supervisor:
        raise LonghaulError(ErrorCode.SPAWN_FAILED, "nothing runs here")

    async def stop(self, home: Home) -> None: ...

    def base(self, home: Home) -> list[Laid]:
        return []

    def templates(self) -> tuple[str, ...]:
        return ()

    def pick(self, template: str) -> str:
        return ""

    async def reconcile(self, places: Callable[[], set[str]]) -> None: ...

    def environment(self, home: Home, extra: dict[str, str]) -> dict[str, str]:
        return extra

    def remove(self, home: Home) -> None: ...

    def explain(self, output: str) -> str:
        return output


class Ready:
    """A probe that needs no trial."""

    async def capabilities(self) -> Capabilities:
        return READY


class Runner:
    """A runner in this process, with a folder in place of the object store."""

    def __init__(self, top: Path) -> None:
        self.shelves = top / "kept"
        backend: Backend = Nothing()
        execs = Execs(backend, Intents(top))
        snapshots = Snapshots(lambda tenant: FolderShelf(self.shelves / tenant))
        maker = Maker(top, backend)
        maker.prepare()
        pool = Pool(maker, backend, 1, 0, lambda: True)
        self.sandboxes = Sandboxes(maker, backend, execs, snapshots, pool)
        routes = Routes(
            self.sandboxes, execs, cast("Any", Ready()), Storage(), snapshots, pool, Quality(backend, execs)
        )
        self.app = build_app(routes, "token")

    def workspace(self, name: str) -> Path:
        return self.sandboxes.find(name).workspace

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RunnerClient]:
        async with TestServer(self.app) as server, RunnerClient(str(server.make_url("")), "token") as client:
            yield client


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def spec(name: str, **more: Any) -> SandboxSpec:
    return SandboxSpec.model_validate({"id": name, "tenant_id": "ann", "task_id": "task_1", **more})


async def test_a_workspace_is_kept_and_comes_back_elsewhere(runner: Runner) -> None:
    async with runner.client() as client:
        await client.create(spec("one"))
        await asyncio.to_thread(fill, runner.workspace("one"), 11)
        taken = await client.snapshot("one", "key_1", OWNER)
        await client.write_file("one", WriteFile(key="w", owner=OWNER, path="later", content="x"))
        assert await client.snapshot("one", "key_1", OWNER) == taken, "a repeat answers what the first one did"
        later = await client.snapshot("one", "key_2", OWNER)
        assert later.files == taken.files + 1
        await client.create(spec("two", snapshot=later.manifest))
        assert state(runner.workspace("two")) == state(runner.workspace("one"))
        fork = await client.snapshot("two", "key_1", OWNER)
        assert (fork.manifest, fork.added_bytes) == (later.manifest, 0)
        owners = {path.lstat().st_uid for path in [runner.workspace("two"), *runner.workspace("two").rglob("*")]}
        assert len(owners) == 1


async def test_a_state_that_cannot_be_had_is_said_and_stops_nothing(runner: Runner) -> None:
    async with runner.client() as client:
        await client.create(spec("one"))
        taken = await client.snapshot("one", "key_1", OWNER, state=True)
        assert taken.state is not None
        assert (taken.state.rows, taken.state.fault) == ((), "nothing runs here")
        assert await client.snapshot("one", "key_1", OWNER, state=True) == taken, (
            "a repeat says what the first one said"
        )
        assert (await client.snapshot("one", "key_2", OWNER)).state is None


async def test_what_may_not_be_is_refused(runner: Runner) -> None:
    async with runner.client() as client:
        await client.create(spec("one"))
        taken = await client.snapshot("one", "key_1", OWNER)
        await client.write_file("one", WriteFile(key="write", owner=OWNER, path="f", content="x"))
        for call, code in (
            (client.create(spec("two", snapshot=taken.manifest, tenant_id="bob")), ErrorCode.SNAPSHOT_NOT_FOUND),
            (client.create(spec("two", snapshot=taken.manifest, copy_of="one")), ErrorCode.VALIDATION_FAILED),
            (client.snapshot("one", "write", OWNER), ErrorCode.VALIDATION_FAILED),
            (client.snapshot("none", "key_1", OWNER), ErrorCode.SANDBOX_NOT_FOUND),
        ):
            with pytest.raises(LonghaulError) as caught:
                await call
            assert caught.value.code is code
        await client.announce("one", OWNER.model_copy(update={"agent_fence": 5}))
        with pytest.raises(Fenced):
            await client.snapshot("one", "key_3", OWNER)


async def test_a_damaged_one_leaves_no_half_sandbox(runner: Runner, tmp_path: Path) -> None:
    async with runner.client() as client:
        await client.create(spec("one"))
        await asyncio.to_thread(fill, runner.workspace("one"), 12)
        taken = await client.snapshot("one", "key_1", OWNER)
        for pack in (runner.shelves / "ann" / "packs").iterdir():
            pack.unlink()
        with pytest.raises(LonghaulError, match="earlier") as caught:
            await client.create(spec("two", snapshot=taken.manifest))
        assert caught.value.code is ErrorCode.SNAPSHOT_FAILED
        assert not list((tmp_path / "making").iterdir())
        with pytest.raises(LonghaulError) as caught:
            await client.info("two")
        assert caught.value.code is ErrorCode.SANDBOX_NOT_FOUND


async def test_changes_wait_while_it_is_taken(runner: Runner) -> None:
    async with runner.client() as client:
        await client.create(spec("one"))
        home = runner.sandboxes.find("one")
        async with runner.sandboxes.still(home):
            write = asyncio.create_task(
                client.write_file("one", WriteFile(key="w", owner=OWNER, path="f", content="x"))
            )
            taking = asyncio.create_task(client.snapshot("one", "key_1", OWNER))
            await asyncio.sleep(0.2)
            assert not write.done()
            assert not taking.done()
        await asyncio.gather(write, taking)
