"""Containers with runc and with gVisor, by the same tests."""

import asyncio
import json
import socket
import threading
from pathlib import Path

import docker
import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import SandboxLimits
from services.sandbox.engine.containers import JOB_UID, Containers
from services.sandbox.engine.profile import profile
from services.sandbox.seccomp import MACHINES
from services.sandbox.supervised.messages import Order
from services.sandbox.supervised.protocol import Reason
from tests.engine.conftest import ENV, Place, Sandbox

REACH = """
import socket
for address in ('169.254.169.254', '8.8.8.8', '127.0.0.1'):
    try:
        socket.create_connection((address, 80), 2)
        print('reached', address)
    except OSError:
        print('no')
"""
CALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
for number in map(int, sys.argv[1:]):
    print(libc.syscall(number, 0, 0, 0), ctypes.get_errno())
"""

pytestmark = pytest.mark.timeout(180)


async def test_a_command_runs_as_a_user_without_rights(sandbox: Sandbox) -> None:
    said = await sandbox.says("id -u; cat /proc/self/status")
    assert said.splitlines()[0] == str(JOB_UID)
    assert "CapEff:\t0000000000000000" in said
    assert "CapPrm:\t0000000000000000" in said


async def test_only_the_named_mounts_are_writable(sandbox: Sandbox) -> None:
    said = await sandbox.says(
        "for d in / /usr /etc /dev /.longhaul /proc/sys/kernel; do touch $d/x 2>/dev/null && echo wrote $d; done"
    )
    assert said == ""
    assert await sandbox.says("echo a > /workspace/a && echo b > /tmp/b && cat /workspace/a /tmp/b") == "a\nb\n"


async def test_there_is_no_network(sandbox: Sandbox) -> None:
    assert await sandbox.says(f'python3 -c "{REACH}"') == "no\nno\nno\n"
    assert (await sandbox.sh("getent hosts pypi.org")).entry.exit_code != 0


async def test_a_new_controller_finds_everything_again(place: Place) -> None:
    async with place.sandbox() as sandbox:
        name = sandbox.name
        order = Order("long", ("echo begun; sleep 3; echo ended",), ENV, shell=True)
        await sandbox.supervisor.start(order)
    async with place.controller(name, epoch=2) as supervisor:
        done = await supervisor.run(order)
        assert done.stdout == b"begun\nended\n"
        assert [entry.id for entry in await supervisor.list()] == ["long"]


async def test_starting_twice_is_starting_once(place: Place) -> None:
    what = place.what()
    await place.containers.start(what)
    await place.containers.start(what)
    assert [found.name for found in await place.containers.list({"task": "t1"}) if found.name == what.name] == [
        what.name
    ]


async def test_only_ours_are_seen_and_destroyed_ones_are_gone(place: Place) -> None:
    async with place.sandbox() as sandbox:
        others = Containers(place.engine.client, Path("/x"), 1, "another")
        assert await others.find(sandbox.name) is None
        assert await others.list() == []
    await place.containers.destroy(sandbox.name)
    await place.containers.destroy(sandbox.name)
    assert await place.containers.find(sandbox.name) is None
    with pytest.raises(LonghaulError, match="does not run") as lost:
        await place.containers.attach(sandbox.name)
    assert lost.value.code is ErrorCode.SANDBOX_LOST


async def test_without_a_controller_it_ends_by_itself(place: Place) -> None:
    async with place.sandbox(linger_s=2) as sandbox:
        name = sandbox.name
    assert await ends(place, name)


async def ends(place: Place, name: str) -> bool:
    """Whether a container ends within half a minute."""
    for _ in range(150):
        found = await place.containers.find(name)
        if found is None or not found.running:
            return True
        await asyncio.sleep(0.2)
    return False


async def test_an_image_that_is_not_there_is_said(place: Place) -> None:
    with pytest.raises(LonghaulError) as wrong:
        await place.containers.start(place.what(image="no-such-image:1"))
    assert wrong.value.code is ErrorCode.NOT_FOUND


async def test_an_engine_that_never_answers_holds_nobody(
    engine: object, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = socket.socket(socket.AF_UNIX)
    path = program.parent / "silent.sock"
    silent.bind(str(path))
    silent.listen()
    threading.Thread(target=silent.accept, daemon=True).start()
    client = docker.DockerClient(base_url=f"unix://{path}", version="1.41", timeout=2)
    containers = Containers(client, program, 1, "tests")
    with pytest.raises(LonghaulError) as away:
        await containers.find("any")
    assert away.value.code is ErrorCode.SANDBOX_UNAVAILABLE
    silent.close()
    path.unlink()


async def test_a_fork_bomb_ends_with_its_command(sandbox: Sandbox) -> None:
    done = await sandbox.sh("b() { b | b & }; b; sleep 60", timeout_s=3)
    assert done.entry.reason in {Reason.TIMEOUT, Reason.EXITED}
    assert await sandbox.says("echo alive") == "alive\n"


async def test_a_full_workspace_is_the_commands_own_trouble(sandbox: Sandbox) -> None:
    said = await sandbox.says("dd if=/dev/zero of=/workspace/big bs=1M count=200 2>&1; wc -c < /workspace/big")
    assert int(said.split()[-1]) <= 64 << 20
    assert "No space" in said or "memory" in said


def test_the_filter_forbids_what_the_other_backend_forbids() -> None:
    told = json.loads(profile("x86_64"))
    named = {name for rule in told["syscalls"] for name in rule["names"]}
    assert named == set(MACHINES["x86_64"].denied) | {"clone", "clone3", "socket"}


@pytest.mark.parametrize("place", ["runc"], indirect=True)
class TestRunc:
    """What the kernel of the host enforces. (gVisor has a kernel of its own, which answers otherwise.)"""

    async def test_system_calls_without_use_are_refused(self, sandbox: Sandbox) -> None:
        numbers = [425, 321, 250, 298, 323, 101]  # io_uring_setup, bpf, keyctl, perf_event_open, userfaultfd, ptrace
        said = await sandbox.says(f'python3 -c "{CALL}" {" ".join(map(str, numbers))}')
        assert said == "-1 1\n" * len(numbers)
        assert (await sandbox.sh("unshare -U true")).entry.exit_code != 0

    async def test_memory_is_held_and_said(self, place: Place) -> None:
        async with place.sandbox(limits=SandboxLimits(memory_mb=96)) as sandbox:
            done = await sandbox.sh("python3 -c 'x = bytearray(900 << 20)'")
            assert done.entry.reason is Reason.OOM
            assert await sandbox.says("echo alive") == "alive\n"

    async def test_the_first_process_is_out_of_reach(self, sandbox: Sandbox) -> None:
        await sandbox.sh("kill -9 1; kill -9 -1; kill -TERM 1")
        said = await sandbox.says("cat /proc/1/environ; ls /proc/1/fd; echo alive")
        assert said.count("denied") == 2
        assert said.endswith("alive\n")
