"""A sandbox of the namespace backend, one supervisor for all its commands: it outlives its runner, not its leash."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import SandboxLimits
from services.sandbox.cgroups import detect
from services.sandbox.home import FOLDERS, OWNED, Home
from services.sandbox.inside import ENVIRONMENT
from services.sandbox.namespace import NamespaceBackend, find_bwrap
from services.sandbox.records import Meta
from services.sandbox.supervised.launch import IN_USE, Launch
from services.sandbox.supervised.messages import Order
from services.sandbox.supervised.protocol import Reason
from services.sandbox.supervised.spawner import Child, Spawner
from services.sandbox.supervised.start import find, find_or_start
from services.sandbox.supervised.stop import first_process
from services.sandbox.template import Template
from services.stack.layout import default_data_dir
from tests.contract.sandbox.runner import sleeping, until
from tests.contract.supervisor.box import Tools

CHECKOUT = Path(__file__).parents[3]
CONTROLLER = """
import asyncio, json, os, pathlib, sys
from services.sandbox.supervised.launch import IN_USE, Launch
from services.sandbox.supervised.messages import Order
from services.sandbox.supervised.spawner import Spawner
from services.sandbox.supervised.start import find_or_start

async def main():
    launch = Launch(**json.loads(sys.argv[1]))
    spawner = Spawner(launch.leash_fd)
    client, _ = await find_or_start(launch, pathlib.Path(launch.folder) / "log", 1, spawner)
    await client.start(Order("a", ("echo once >> ran; sleep 1; cat ran",), shell=True, env={"PATH": "/usr/bin:/bin"}))
    print("started", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


class Place:
    """A sandbox's folder as the runner lays it out, and the backend that knows it."""

    def __init__(self, tools: Tools) -> None:
        self.data = Path(tempfile.mkdtemp(prefix="lh-supervised-"))
        self.leash, self.hand = os.pipe()
        template = Template(Path(os.environ.get("LONGHAUL_RUNNER_TEMPLATE_DIR") or default_data_dir() / "template"))
        self.backend = NamespaceBackend(self.data, template, detect(), find_bwrap(), tools.supervisor, self.leash)
        self.backend.setup()
        self.spawner = Spawner(self.leash)
        self.program = self.data / "shared" / "supervisor" / "supervisor"
        self.uid = 229_000 if os.geteuid() == 0 else None

    def home(self, name: str = "sbx_one") -> Home:
        meta = Meta(
            id=name, tenant_id="t", task_id="t", limits=SandboxLimits(), uid=self.uid,
            backend="namespace", created_at=datetime.now(UTC),
        )  # fmt: skip
        home = Home(self.data / name, meta)
        for folder in (home.root, *(home.root / part for part in FOLDERS)):
            folder.mkdir(mode=0o711 if folder == home.root else 0o700)
        self.backend.make(home)
        for part in OWNED if self.uid is not None else ():
            os.chown(home.root / part, self.uid or 0, self.uid or 0)
        return home

    def launch(self, home: Home) -> Launch:
        return self.backend.launch(home)

    def hang_up(self) -> None:
        if self.hand >= 0:
            os.close(self.hand)
        self.hand = -1

    async def remove(self) -> None:
        self.hang_up()
        await self.spawner.close()
        os.close(self.leash)
        for folder in self.data.glob("sbx_*"):
            for _ in range(100):
                if await find_nobody(folder):
                    break
                await asyncio.sleep(0.05)
        shutil.rmtree(self.data, ignore_errors=True)


async def find_nobody(folder: Path) -> bool:
    """Whether no supervisor lives there any more."""
    try:
        found = await find(folder, 2**62)
    except LonghaulError:
        return False
    if found is not None:
        await found.close()
    return found is None


async def ended(child: Child) -> int:
    """The code with which it ends."""
    async with asyncio.timeout(10):
        await child.ended.wait()
    assert child.code is not None
    return child.code


@pytest.fixture
async def place(tools: Tools) -> AsyncIterator[Place]:
    made = Place(tools)
    yield made
    await made.remove()


def order(place: Place, name: str, command: str, timeout_s: float = 20) -> Order:
    return Order(name, (command,), shell=True, env=ENVIRONMENT, merge=True, timeout_s=timeout_s)


async def test_commands_are_as_confined_as_ever_and_share_one_sandbox(place: Place) -> None:
    home = place.home()
    client, child = await find_or_start(place.launch(home), home.root / "log", time.time_ns(), place.spawner)
    assert child is not None
    done = await client.run(order(place, "a", "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status; id -u; pwd"))
    assert done.stdout.split() == [
        b"CapEff:",
        b"0" * 16,
        b"NoNewPrivs:",
        b"1",
        b"Seccomp:",
        b"2",
        b"1000",
        b"/workspace",
    ]
    tries = "for c in 'unshare -U true' 'mount -t tmpfs x /mnt'; do $c && echo did; done; echo 1 > /x; "
    done = await client.run(order(place, "b", tries + "echo 1 > /.longhaul/x; ls /sys /home; true"))
    assert b"did" not in done.stdout
    assert done.stdout.count(b"Read-only file system") == 2
    assert done.stdout.count(b"No such file") == 2
    await client.run(order(place, "c", "echo shared > file; echo tmp > /tmp/file"))
    assert (await client.run(order(place, "d", "cat file /tmp/file"))).stdout == b"shared\ntmp\n"
    assert await client.files.read("file") == b"shared\n"
    expected = place.uid if place.uid is not None else os.geteuid()
    assert (home.workspace / "file").stat().st_uid == expected
    await client.shutdown()
    assert await ended(child) == 0
    await client.close()


async def test_a_runner_killed_in_the_middle_is_replaced(place: Place) -> None:
    home = place.home()
    launch = place.launch(home)
    controller = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONTROLLER, json.dumps(asdict(launch)), cwd=CHECKOUT, stdout=asyncio.subprocess.PIPE,
        pass_fds=[place.leash], env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )  # fmt: skip
    assert controller.stdout is not None
    assert await controller.stdout.readline() == b"started\n"
    controller.kill()
    await controller.wait()
    client, child = await find_or_start(launch, home.root / "log", 2, place.spawner)
    assert child is None, "it was found, not started"
    again = await client.start(
        Order("a", ("echo once >> ran; sleep 1; cat ran",), shell=True, env={"PATH": "/usr/bin:/bin"})
    )
    assert not again.started
    kept = await client.kept(again)
    assert (kept.stdout, kept.entry.reason) == (b"once\n", Reason.EXITED)
    await client.close()


async def test_two_at_once_start_one(place: Place) -> None:
    home = place.home()
    pairs = await asyncio.gather(
        *(find_or_start(place.launch(home), home.root / "log", 1, place.spawner) for _ in range(4))
    )
    greetings = {client.greeting.instance for client, _ in pairs if client.greeting is not None}
    assert len(greetings) == 1
    for client, _ in pairs:
        await client.close()
    children = [child for _, child in pairs if child is not None]
    for _ in range(1000):
        if [child.ended.is_set() for child in children].count(False) == 1:
            break
        await asyncio.sleep(0.01)
    place.hang_up()
    codes = [await ended(child) for child in children]
    assert sorted(codes) == [0, *[IN_USE] * (len(codes) - 1)]


async def test_the_launchers_end_ends_it(place: Place) -> None:
    home = place.home()
    client, child = await find_or_start(place.launch(home), home.root / "log", 1, place.spawner)
    assert child is not None
    await client.start(order(place, "a", "trap '' TERM HUP; sleep 60"))
    place.hang_up()
    assert await ended(child) == 0
    await client.close()


async def test_what_cannot_start_says_why(place: Place) -> None:
    home = place.home()
    place.program.unlink()
    with pytest.raises(LonghaulError) as caught:
        await find_or_start(place.launch(home), home.root / "log", 1, place.spawner)
    assert caught.value.code is ErrorCode.SPAWN_FAILED
    assert "supervisor" in caught.value.detail


async def test_the_runners_port_finds_starts_and_stops(place: Place) -> None:
    home, backend = place.home(), place.backend
    assert await backend.find(home, 1) is None
    await backend.stop(home)
    first = await backend.start(home, 1)
    again = await backend.find(home, 2)
    assert again is not None
    assert first.greeting is not None
    assert again.greeting is not None
    assert again.greeting.instance == first.greeting.instance
    await again.start(order(place, "a", "(setsid sleep 43210.5 &); trap '' TERM; sleep 43210.5"))
    await until(lambda: len(sleeping("43210.5")) == 2)
    with pytest.raises(LonghaulError):
        await backend.find(home, 1)
    await backend.stop(home)
    assert not sleeping("43210.5")
    assert await backend.find(home, 3) is None
    await backend.stop(home)
    fresh = await backend.start(home, 3)
    assert fresh.greeting is not None
    assert fresh.greeting.instance != first.greeting.instance
    for client in (first, again, fresh):
        await client.close()


async def test_one_that_does_not_answer_is_ended_all_the_same(place: Place) -> None:
    home = place.home()
    client = await place.backend.start(home, 1)
    fd = first_process(home.root)
    assert fd is not None
    signal.pidfd_send_signal(fd, signal.SIGSTOP)
    os.close(fd)
    await place.backend.stop(home)
    assert await place.backend.find(home, 2) is None
    await client.close()


async def test_what_starts_sandboxes_may_die_and_they_go_on(place: Place) -> None:
    first, second = place.home("sbx_first"), place.home("sbx_second")
    client, child = await find_or_start(place.launch(first), first.root / "log", 1, place.spawner)
    assert child is not None
    command = await client.start(order(place, "a", "sleep 1; echo still here"))
    assert place.spawner.pid is not None
    os.kill(place.spawner.pid, signal.SIGKILL)
    await asyncio.wait_for(child.ended.wait(), 10)
    assert child.code is None, "nobody can tell"
    other, started = await find_or_start(place.launch(second), second.root / "log", 1, place.spawner)
    assert started is not None
    assert (await client.kept(command)).stdout == b"still here\n"
    for one in (client, other):
        await one.shutdown()
        await one.close()


async def test_many_at_once(place: Place) -> None:
    homes = [place.home(f"sbx_{n}") for n in range(20)]
    pairs = await asyncio.gather(
        *(find_or_start(place.launch(home), home.root / "log", 1, place.spawner) for home in homes)
    )
    assert len({client.greeting.instance for client, _ in pairs if client.greeting is not None}) == 20
    assert all(child is not None and not child.ended.is_set() for _, child in pairs)
    for client, _ in pairs:
        await client.close()
