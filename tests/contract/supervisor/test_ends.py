"""How commands end: in time, with everything they started, and told as it was."""

import asyncio
import os
from pathlib import Path

import pytest

from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.messages import Refused
from services.sandbox.supervised.protocol import EntryBit, Fault, Reason, State
from tests.contract.supervisor.box import Sandbox, Tools, finish, sh
from tests.contract.supervisor.watch import eventually, inside

BOMB = """exec python3 -c '
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
'"""
SETSID_BOMB = """exec python3 -c '
import os
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
'"""


async def test_a_timeout_ends_everything_whatever_its_session(client: Supervisor) -> None:
    tree = "(setsid sh -c 'trap \"\" TERM; sleep 321.5; sleep 321.5' &) ; nohup sleep 321.5 & sleep 321.5"
    entry, _, _ = await finish(client, sh("a", tree, timeout_s=0.5, grace_s=0.3))
    assert (entry.state, entry.reason, entry.exit_code) == (State.CLOSED, Reason.TIMEOUT, 143)
    assert await inside(client, "sleep 321.5") == 0


async def test_what_ignores_the_polite_signal_is_killed(client: Supervisor) -> None:
    entry, _, _ = await finish(
        client, sh("a", "trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.3, grace_s=0.3)
    )
    assert (entry.reason, entry.exit_code) == (Reason.TIMEOUT, 137)


async def test_one_that_ends_itself_in_its_grace_keeps_its_code(client: Supervisor) -> None:
    entry, out, _ = await finish(
        client, sh("a", "trap 'echo bye; exit 9' TERM; while :; do sleep 0.05; done", timeout_s=0.3, grace_s=5)
    )
    assert (entry.reason, entry.exit_code, out) == (Reason.TIMEOUT, 9, b"bye\n")


async def test_kill_ends_everything(client: Supervisor) -> None:
    command = await client.start(sh("a", "setsid sleep 322.5 & sleep 322.5"))
    await eventually(lambda: inside(client, "sleep 322.5"), 2)
    entry = await command.kill()
    assert (entry.reason, entry.exit_code) == (Reason.KILLED, 137)
    assert await inside(client, "sleep 322.5") == 0


async def test_what_is_left_behind_is_counted_and_ended(client: Supervisor) -> None:
    entry, out, _ = await asyncio.wait_for(finish(client, sh("a", "sleep 323.5 & setsid sleep 323.5 & echo done")), 10)
    assert (entry.reason, entry.exit_code, entry.left_behind, out) == (Reason.EXITED, 0, 2, b"done\n")
    assert await inside(client, "sleep 323.5") == 0


async def test_a_background_job_goes_on_is_listed_and_has_a_deadline(client: Supervisor) -> None:
    command = await client.start(
        sh("a", "(sleep 0.3; echo later; sleep 324.5) & echo now", background=True, timeout_s=1.5, grace_s=0)
    )
    entry = await asyncio.wait_for(command.exited(), 10)
    assert (entry.state, entry.exit_code) == (State.EXITED, 0)
    assert entry.left_behind >= 1
    assert EntryBit.OUTPUT_OPEN in entry.bits
    [listed] = await client.list()
    assert listed.state == State.EXITED
    assert listed.deadline_ms is not None
    assert 0 < listed.deadline_ms <= 1500
    said = b"".join([piece.data async for piece in command.pieces()])
    ended = await command.closed()
    assert said == b"now\nlater\n"
    assert (ended.reason, ended.exit_code) == (Reason.EXITED, 0)
    assert await inside(client, "sleep 324.5") == 0


@pytest.mark.parametrize("bomb", [BOMB, SETSID_BOMB], ids=["one group", "a session each"])
async def test_a_fork_bomb_is_ended_and_the_next_command_runs(tools: Tools, bomb: str) -> None:
    sandbox = Sandbox(tools, "--nproc", "150")
    try:
        client = await sandbox.start()
        entry, _, _ = await finish(client, sh("bomb", bomb, timeout_s=1))
        assert entry.reason in (Reason.TIMEOUT, Reason.LOST)
        assert (await finish(client, sh("next", "echo alive")))[1] == b"alive\n"
        assert await inside(client, "python3") == 0
        await client.close()
    finally:
        await sandbox.remove()


async def test_a_kill_of_everything_from_inside_is_lost_and_no_hang(client: Supervisor) -> None:
    other = await client.start(sh("other", "sleep 325.5"))
    command = await client.start(sh("a", "kill -9 -1; sleep 325.5"))
    entries = await asyncio.wait_for(asyncio.gather(command.closed(), other.closed()), 10)
    assert {entry.reason for entry in entries} <= {Reason.LOST, Reason.EXITED}
    assert Reason.LOST in {entry.reason for entry in entries}
    assert await inside(client, "sleep 325.5") == 0
    assert (await finish(client, sh("next", "echo alive")))[1] == b"alive\n"


async def test_a_stop_of_everything_from_inside_is_no_hang(client: Supervisor) -> None:
    other = await client.start(sh("other", "sleep 0.5; echo through"))
    entry, _, _ = await asyncio.wait_for(finish(client, sh("a", "kill -STOP -1; exit 4")), 10)
    assert entry.exit_code == 4
    entry = await other.kill()
    assert entry.reason in (Reason.KILLED, Reason.EXITED)


async def test_signals_at_process_1_do_nothing(client: Supervisor) -> None:
    await finish(client, sh("a", "for s in $(seq 1 64); do kill -$s 1 2>/dev/null; done; true"))
    await client.ping()
    assert (await finish(client, sh("next", "echo alive")))[1] == b"alive\n"


async def test_an_output_limit_ends_it(client: Supervisor) -> None:
    entry, _, _ = await finish(client, sh("a", "yes", output_limit=1_000_000))
    assert entry.reason == Reason.OUTPUT_LIMIT
    assert 1_000_000 < entry.stdout_bytes < 20_000_000


async def test_a_pipe_in_other_hands_does_not_hold_the_end(client: Supervisor) -> None:
    """A descriptor that was passed to another command outlives the one it belongs to."""
    keep = """import os, socket, time
server = socket.socket(socket.AF_UNIX); server.bind('/tmp/s'); server.listen()
print('up', flush=True)
peer, _ = server.accept(); held = socket.recv_fds(peer, 1, 1); time.sleep(60)"""
    give = """import socket
client = socket.socket(socket.AF_UNIX); client.connect('/tmp/s'); socket.send_fds(client, [b'x'], [1])"""
    keeper = await client.start(sh("keep", f'exec python3 -c "{keep}"'))
    async for piece in keeper.pieces():
        if piece.data == b"up\n":
            break
    entry, _, _ = await asyncio.wait_for(finish(client, sh("give", f'python3 -c "{give}"; echo done')), 10)
    assert (entry.state, entry.reason, entry.exit_code) == (State.CLOSED, Reason.EXITED, 0)
    await keeper.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="a limit on processes of a whole sandbox needs a cgroup, and that root")
async def test_a_fork_bomb_at_the_limit_of_its_cgroup(tools: Tools) -> None:
    """Where no process can be made, a new command is refused and the supervisor still ends the old one."""
    group = _group("pids", "pids.max", "pids.max", "64")
    if group is None:
        pytest.skip("no writable cgroup for processes here")
    sandbox = Sandbox(tools)
    try:
        client = await sandbox.start()
        (group / "cgroup.procs").write_text(str(sandbox.pid))
        bombing = asyncio.create_task(finish(client, sh("bomb", SETSID_BOMB, timeout_s=3)))
        await asyncio.sleep(0.8)
        with pytest.raises(Refused) as caught:
            await asyncio.wait_for(_many(client), 10)
        assert (caught.value.fault, caught.value.errno) == (Fault.SPAWN, 11)
        assert (await bombing)[0].reason in (Reason.TIMEOUT, Reason.LOST)
        assert (await finish(client, sh("next", "echo alive")))[1] == b"alive\n"
        await client.close()
    finally:
        await sandbox.remove()
        await _ungroup(group)


async def _many(client: Supervisor) -> None:
    for n in range(200):
        await client.start(sh(f"more{n}", "true"))


@pytest.mark.skipif(os.geteuid() != 0, reason="limits on memory need a cgroup, and that root")
async def test_the_end_for_want_of_memory_is_told(tools: Tools) -> None:
    group = _group("memory", "memory.limit_in_bytes", "memory.max", str(96 << 20))
    if group is None:
        pytest.skip("no writable memory cgroup here")
    name = "memory.events" if (group / "memory.events").exists() else "memory.oom_control"
    sandbox = Sandbox(tools, "--oom", "/counter/" + name, binds=("--ro-bind", str(group), "/counter"))
    try:
        client = await sandbox.start()
        (group / "cgroup.procs").write_text(str(sandbox.pid))
        assert client.greeting is not None
        assert client.greeting.tells_oom
        entry, _, _ = await finish(client, sh("main", "exec python3 -c 'x = bytearray(300 << 20)'"))
        assert (entry.reason, entry.exit_code) == (Reason.OOM, 137)
        entry, out, _ = await finish(client, sh("child", "python3 -c 'x = bytearray(300 << 20)'; echo $?; exit 3"))
        assert (entry.reason, entry.exit_code, out) == (Reason.EXITED, 3, b"137\n")
        assert EntryBit.OOM_SEEN in entry.bits
        entry, _, _ = await finish(client, sh("next", "true"))
        assert (entry.reason, entry.bits) == (Reason.EXITED, 0)
        await client.close()
    finally:
        await sandbox.remove()
        await _ungroup(group)


def _group(controller: str, v1: str, v2: str, value: str) -> Path | None:
    """A new cgroup with this limit, of either version; None where none can be made."""
    root = Path("/sys/fs/cgroup")
    own = (root / controller).is_dir()
    group = root / (controller if own else "") / f"longhaul-test-{controller}-{os.getpid()}"
    try:
        group.mkdir()
        (group / (v1 if own else v2)).write_text(value)
    except OSError:
        return None
    return group


async def _ungroup(group: Path) -> None:
    for _ in range(50):
        if not (group / "cgroup.procs").read_text():
            break
        await asyncio.sleep(0.1)
    group.rmdir()
