"""What is special about containers: who finds them again, what ends them, what an engine that does not answer does."""

import asyncio
import contextlib
import json
import os
import socket
import threading
from pathlib import Path

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox.engine import leash
from services.sandbox.engine.backend import DOCKER
from services.sandbox.engine.profile import profile
from services.sandbox.home import Home
from services.sandbox.seccomp import MACHINES
from services.sandbox.supervised.messages import LinkLost, Order
from services.sandbox.supervised.protocol import Reason
from tests.engine.conftest import UID, Place

pytestmark = pytest.mark.timeout(180)
E = ErrorCode


async def fault(awaitable: object) -> LonghaulError:
    with pytest.raises(LonghaulError) as caught:
        await awaitable  # type: ignore[misc]
    return caught.value


async def test_commands_run_as_the_sandboxs_user_without_rights(place: Place) -> None:
    supervisor = await place.start(place.home())
    said = await place.says(supervisor, "id -u; id -un; grep -E '^(CapEff|CapPrm|Seccomp):' /proc/self/status")
    assert said.split() == [str(UID), "user", "CapPrm:", "0" * 16, "CapEff:", "0" * 16, "Seccomp:", "2"]


async def test_the_workspace_and_tmp_are_the_hosts_folders(place: Place) -> None:
    home = place.home()
    (home.workspace / "given").write_text("from outside\n")
    supervisor = await place.start(home)
    assert await place.says(supervisor, "cat given; echo a > a; echo b > /tmp/b; pwd") == "from outside\n/workspace\n"
    assert ((home.workspace / "a").read_text(), (home.private / "b").read_text()) == ("a\n", "b\n")
    assert (home.workspace / "a").stat().st_uid == UID
    (home.workspace / "given").write_text("changed\n")
    assert await place.says(supervisor, "cat given") == "changed\n"


async def test_the_next_runner_finds_what_runs(place: Place) -> None:
    home = place.home()
    assert await place.backend.find(home, 1) is None
    order = Order("long", ("echo begun; sleep 2; echo ended",), {"PATH": "/usr/bin:/bin"}, shell=True)
    await (await place.start(home)).start(order)
    _, next_one = place.another()
    supervisor = await next_one.find(home, 2)
    assert supervisor is not None
    assert (await supervisor.run(order)).stdout == b"begun\nended\n"
    assert [entry.id for entry in await supervisor.list()] == ["long"]
    assert (await fault(place.backend.find(home, 1))).code is E.FENCED
    await supervisor.close()


async def test_many_starts_are_one(place: Place) -> None:
    home = place.home()
    await asyncio.gather(*(place.start(home) for _ in range(3)))
    assert len(await place.containers.list()) == 1
    [found] = await place.containers.list({"longhaul.task": "task_1", "longhaul.place": home.meta.id})
    assert found.running


async def test_one_that_has_ended_is_started_anew(place: Place) -> None:
    home = place.home()
    first = await place.start(home)
    await place.says(first, "echo kept > note; echo kept > ~/note")
    with contextlib.suppress(LinkLost):
        await first.shutdown()
    await ends(place)
    assert await place.backend.find(home, 1) is None
    assert await place.says(await place.start(home), "cat note ~/note") == "kept\nkept\n"


async def ends(place: Place) -> None:
    """Wait until nothing of it runs."""
    async with asyncio.timeout(30):
        while any(found.running for found in await place.containers.list()):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_stopped_ones_are_gone_and_stopping_repeats(place: Place) -> None:
    home = place.home()
    supervisor = await place.start(home)
    command = await supervisor.start(Order("a", ("sleep", "60"), {"PATH": "/usr/bin:/bin"}))
    for _ in range(2):
        await place.backend.stop(home)
        assert await place.containers.list() == []
    with pytest.raises(LinkLost):
        await command.closed()


async def test_what_belongs_to_no_sandbox_is_removed(place: Place) -> None:
    kept, lost = place.home("sbx_kept"), place.home("sbx_lost")
    for home in (kept, lost):
        await place.start(home)
    place.owner = "another"
    strangers, other = place.another()
    assert await strangers.list() == []
    await other.reconcile(set)
    await place.backend.reconcile(lambda: {kept.meta.id})
    assert [found.labels["longhaul.place"] for found in await place.containers.list()] == [kept.meta.id]


async def test_without_a_controller_it_ends_by_itself(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.sandbox.engine.backend.LINGER_S", 2)
    supervisor = await place.start(place.home())
    assert len([found for found in await place.containers.list() if found.running]) == 1
    await supervisor.close()
    await ends(place)


async def test_the_launchers_end_ends_it_although_no_runner_lives(place: Place, tmp_path: Path) -> None:
    await place.start(place.home())
    reading, writing = os.pipe()
    for _ in range(2):
        leash.put_on(reading, tmp_path / "lock", place.url, place.owner)
    await asyncio.sleep(0.5)
    assert len(await place.containers.list()) == 1
    os.close(writing)
    async with asyncio.timeout(30):
        while await place.containers.list():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    os.close(reading)


async def test_limits_are_held_or_refused(place: Place) -> None:
    can = place.backend.capabilities()
    assert can.ready, can.detail
    for name, value in {"memory_mb": 128, "cpu": 0.5, "pids": 64, "disk_mb": 100}.items():
        if name in can.limits:
            continue
        refused = await fault(asyncio.to_thread(place.home, f"sbx_{name}", **{name: value}))
        assert (refused.code, name in refused.detail) == (E.CAPABILITY_MISSING, True)
        place.home(f"sbx_any_{name}", **{name: value, "best_effort": True})


async def test_memory_is_held_and_said(place: Place) -> None:
    """By the kernel's counter inside; where that is another kernel's, by the engine, and the sandbox ends."""
    home = place.home(memory_mb=96)
    supervisor = await place.start(home)
    if place.name == DOCKER.name:
        assert (await place.run(supervisor, "python3 -c 'x = bytearray(900 << 20)'")).entry.reason is Reason.OOM
    else:
        with pytest.raises(LinkLost):
            await place.run(supervisor, "python3 -c 'x = bytearray(900 << 20)'")
        await ends(place)
        [found] = await place.containers.list()
        known = await place.containers.find(found.name)
        assert known is not None
        assert "memory" in known.why
    assert await place.says(await place.start(home), "echo alive") == "alive\n"


async def test_a_paused_one_is_said_and_goes_on(place: Place, engine: object) -> None:
    home = place.home()
    await (await place.start(home)).close()
    [found] = await place.containers.list()
    await place.backend._client.ask(lambda api: api.pause(found.name))
    told = await fault(place.start(home))
    assert (told.code, found.name in told.detail) == (E.SANDBOX_UNAVAILABLE, True)
    await place.backend._client.ask(lambda api: api.unpause(found.name))
    assert await place.says(await place.start(home), "echo on") == "on\n"


@pytest.mark.parametrize("place", [DOCKER.name], indirect=True)
class TestEngine:
    """What has nothing to do with how containers run."""

    async def test_a_supervisor_that_stays_mute_is_replaced(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("services.sandbox.supervised.link.HELLO_WAIT_S", 2.0)
        home = place.home()
        await (await place.start(home)).close()
        [found] = await place.containers.list()
        pid = (await place.backend._client.ask(lambda api: api.inspect_container(found.name)))["State"]["Pid"]
        os.kill(host_pid(pid), 19)
        assert (await fault(place.backend.find(home, 1))).code is E.SANDBOX_UNAVAILABLE
        assert await place.says(await place.start(home), "echo anew") == "anew\n"

    async def test_an_image_that_is_not_there_is_said_and_not_pulled(self, place: Place) -> None:
        _, backend = place.another(image="no-such/image:1")
        can = backend.capabilities()
        assert not can.ready
        assert "docker pull no-such/image:1" in can.detail

    async def test_an_image_of_the_operators_own(self, place: Place) -> None:
        assert place.backend.capabilities().ready
        own = place.backend._images.get("")
        await place.backend._client.ask(lambda api: api.tag(own.name, "mine", "1"))
        _, backend = place.another(image="mine:1")
        assert backend.capabilities().ready
        assert backend.environment(place.home("sbx_other"), {})["PATH"].startswith("/usr/local/sbin:")
        supervisor = await place.start(place.home(), backend)
        done = await place.run(supervisor, "echo here")
        assert done.entry.reason is Reason.SPAWN_FAILED, "it is empty: without /usr there is no shell"

    async def test_a_runtime_that_is_not_there_is_said(self, place: Place) -> None:
        _, backend = place.another(runtime="no-such")
        can = backend.capabilities()
        assert not can.ready
        assert "no runtime no-such" in can.detail

    async def test_an_engine_that_does_not_answer_holds_nobody(self, place: Place, tmp_path: Path) -> None:
        for url in (f"unix://{tmp_path}/none.sock", silent(tmp_path / "s")):
            _, backend = place.another(url=url)
            can = backend.capabilities()
            assert not can.ready
            assert "no engine answers" in can.detail
            home = Home(tmp_path, place.home(f"sbx_{len(url)}").meta)
            for call in (backend.find(home, 1), backend.start(home, 1), backend.stop(home)):
                assert (await fault(call)).code is E.SANDBOX_UNAVAILABLE


def silent(path: Path) -> str:
    """An engine that accepts and says nothing."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def hold() -> None:
        held = []
        with contextlib.suppress(OSError):
            while True:
                held.append(server.accept())

    threading.Thread(target=hold, daemon=True).start()
    return f"unix://{path}"


def host_pid(inner: int) -> int:
    """The pid here of a process that the engine, in a namespace of its own, calls `inner`."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            rows = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            pids = rows["NSpid"].split()
            if len(pids) == 3 and pids[1:] == [str(inner), "1"]:
                return int(pids[0])
    raise AssertionError(f"no process {inner}")


def test_the_filter_forbids_what_the_other_backend_forbids() -> None:
    told = json.loads(profile("x86_64"))
    named = {name for rule in told["syscalls"] for name in rule["names"]}
    assert named == set(MACHINES["x86_64"].denied) | {"clone", "clone3", "socket"}
