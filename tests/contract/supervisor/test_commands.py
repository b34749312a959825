"""Commands: started once, told exactly."""

import asyncio
import hashlib
import signal

import pytest

from agents.contracts.errors import ErrorCode
from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.messages import Order, Refused
from services.sandbox.supervised.protocol import Fault, Reason, State
from tests.contract.supervisor.box import PATH, Sandbox, finish, sh


async def test_output_code_and_times(client: Supervisor) -> None:
    entry, out, err = await finish(client, sh("a", "echo out; echo err >&2; exit 7"))
    assert (out, err) == (b"out\n", b"err\n")
    assert (entry.state, entry.reason, entry.exit_code, entry.signal) == (State.CLOSED, Reason.EXITED, 7, 0)
    assert (entry.stdout_bytes, entry.stderr_bytes, entry.left_behind, entry.bits) == (4, 4, 0, 0)
    assert 0 < entry.started_ns <= entry.ended_ns
    assert entry.max_rss_kb > 0


async def test_arguments_folder_and_environment_are_exactly_what_was_given(client: Supervisor) -> None:
    argv = ("/usr/bin/env", "-0")
    entry, out, _ = await finish(client, Order("a", argv, env={"A": "1 2", "B": ""}))
    assert (entry.exit_code, sorted(out.split(b"\0"))) == (0, [b"", b"A=1 2", b"B="])
    _, out, _ = await finish(client, Order("b", ("printf", "%s|", "a b", "", "$x", b"\xff"), env=PATH, folder="/tmp"))
    assert out == b"a b||$x|\xff|"
    assert (await finish(client, sh("c", "pwd", folder="/usr/bin")))[1] == b"/usr/bin\n"


async def test_a_signal_is_told_as_one(client: Supervisor) -> None:
    entry, _, _ = await finish(client, sh("a", "kill -SEGV $$"))
    assert (entry.reason, entry.signal, entry.exit_code) == (Reason.EXITED, signal.SIGSEGV, 139)


@pytest.mark.parametrize(
    ("order", "errno"),
    [
        (Order("a", ("/no/such/program",), env=PATH), 2),
        (Order("a", ("no-such-program",), env=PATH), 2),
        (Order("a", ("/etc/passwd",), env=PATH), 13),
        (Order("a", ("true",), env=PATH, folder="/no/such/folder"), 2),
    ],
)
async def test_what_cannot_be_started_says_why(client: Supervisor, order: Order, errno: int) -> None:
    entry, _, _ = await finish(client, order)
    assert (entry.reason, entry.errno, entry.exit_code) == (Reason.SPAWN_FAILED, errno, None)


async def test_an_id_runs_once(client: Supervisor) -> None:
    order = sh("a", "echo once >> ran; cat ran; sleep 0.2")
    commands = await asyncio.gather(*(client.start(order) for _ in range(5)))
    assert [command.started for command in commands] == [True, False, False, False, False]
    assert (await commands[0].closed()).exit_code == 0
    again = await client.run(order)
    assert (again.stdout, again.entry.handle) == (b"once\n", commands[0].entry.handle)
    assert (await finish(client, sh("b", "cat ran")))[1] == b"once\n"


async def test_an_id_used_for_another_command_is_refused(client: Supervisor) -> None:
    await finish(client, sh("a", "true"))
    with pytest.raises(Refused) as caught:
        await client.start(sh("a", "false"))
    assert (caught.value.fault, caught.value.code) == (Fault.MISMATCH, ErrorCode.VALIDATION_FAILED)


async def test_forgotten_means_gone(client: Supervisor) -> None:
    running = await client.start(sh("a", "sleep 60"))
    with pytest.raises(Refused) as caught:
        await client.forget(running)
    assert caught.value.fault == Fault.STILL_RUNNING
    await running.kill()
    await client.forget(running)
    assert await client.list() == []
    with pytest.raises(Refused) as caught:
        await client.attach("a")
    assert caught.value.fault == Fault.NO_EXEC
    assert (await client.start(sh("a", "true"))).started


async def test_stdin_is_at_its_end_where_none_is_given(client: Supervisor) -> None:
    assert (await finish(client, sh("a", "cat; readlink /proc/self/fd/0")))[1] == b"/dev/null\n"
    assert (await finish(client, sh("b", "cat", stdin=b"first\0bytes")))[1] == b"first\0bytes"


async def test_more_stdin_than_a_pipe_holds(client: Supervisor) -> None:
    data = bytes(range(256)) * 8192
    command = await client.start(sh("a", "sleep 0.2; md5sum | cut -c1-32; echo done", more_stdin=True))
    await command.write(data[: 1 << 20])
    await command.write(data[1 << 20 :], end=True)
    entry = await command.closed()
    assert entry.stdin_taken == len(data)
    assert (await client.kept(command)).stdout == hashlib.md5(data).hexdigest().encode() + b"\ndone\n"


async def test_stdin_that_is_sent_again_counts_once(client: Supervisor) -> None:
    command = await client.start(sh("a", "cat", more_stdin=True))
    await command.write(b"hello ")
    again = await client.attach("a")
    again._written = 0  # as one who never heard the answer
    await again.write(b"hello world", end=True)
    assert (await client.kept(again)).stdout == b"hello world"


async def test_writing_to_one_that_reads_no_more_is_told(client: Supervisor) -> None:
    command = await client.start(sh("a", "exec <&-; sleep 60", more_stdin=True))
    with pytest.raises(Refused) as caught:
        await command.write(b"x" * 6_000_000)
    assert (caught.value.fault, caught.value.errno) == (Fault.NOT_RUNNING, 32)
    await command.kill()


async def test_a_reader_sees_the_end_whatever_else_was_started(client: Supervisor) -> None:
    """No command holds another's pipes."""
    reader = await client.start(sh("reader", "cat; echo end", more_stdin=True))
    others = [await client.start(sh(f"other{n}", "sleep 60")) for n in range(3)]
    await reader.write(b"x\n", end=True)
    assert (await asyncio.wait_for(reader.closed(), 10)).exit_code == 0
    for other in others:
        await other.kill()


async def test_no_descriptor_but_the_three(client: Supervisor) -> None:
    await client.start(sh("other", "sleep 60", more_stdin=True))
    assert (await finish(client, sh("a", "ls /proc/self/fd")))[1] == b"0\n1\n2\n3\n"  # 3 is the listing's own


async def test_both_outputs_in_one(client: Supervisor) -> None:
    entry, out, err = await finish(client, sh("a", "echo 1; echo 2 >&2; echo 3", merge=True))
    assert (out, err, entry.stderr_bytes) == (b"1\n2\n3\n", b"", 0)


async def test_many_at_once(client: Supervisor) -> None:
    done = await asyncio.gather(*(client.run(sh(f"e{n}", f"sleep 0.1; echo {n}")) for n in range(60)))
    assert [one.stdout for one in done] == [f"{n}\n".encode() for n in range(60)]
    assert {entry.state for entry in await client.list()} == {State.CLOSED}


async def test_a_terminal(client: Supervisor) -> None:
    command = await client.start(
        sh("a", "test -t 0 -a -t 1 && stty size; read line; stty size; echo got $line; cat; exit 3", pty=True,
           rows=40, columns=100, more_stdin=True)
    )  # fmt: skip
    said = b""
    async for piece in command.pieces():
        said += piece.data
        if said == b"40 100\r\n":
            await command.resize(50, 120)
            await command.write(b"hello\n")
        if said.endswith(b"got hello\r\n"):  # else the echo comes between the lines of the command
            await command.write(b"more", end=True)
    entry = await command.closed()
    assert said == b"40 100\r\nhello\r\n50 120\r\ngot hello\r\nmoremore"
    assert entry.exit_code == 3


async def test_a_terminals_interrupt_reaches_the_command(client: Supervisor) -> None:
    command = await client.start(sh("a", "trap 'echo caught; exit 4' INT; echo up; while :; do sleep 0.05; done",
                                    pty=True, more_stdin=True))  # fmt: skip
    async for piece in command.pieces():
        if piece.data.startswith(b"up"):
            await command.write(b"\3")
    assert (await command.closed()).exit_code == 4


async def test_signals_reach_the_group_or_everything(client: Supervisor) -> None:
    trap = "trap 'echo usr; exit 5' USR1; echo up; while :; do sleep 0.05; done"
    command = await client.start(sh("a", trap))
    async for piece in command.pieces():
        if piece.data == b"up\n":
            await command.signal(signal.SIGUSR1)
    assert (await command.closed()).exit_code == 5
    command = await client.start(sh("b", f'trap : USR1; setsid sh -c "{trap}" & wait $!; wait $!'))
    async for piece in command.pieces():
        if piece.data == b"up\n":
            await command.signal(signal.SIGUSR1, everything=True)
    assert b"usr" in (await client.kept(command)).stdout


async def test_nothing_is_left_of_the_dead(client: Supervisor) -> None:
    for n in range(20):
        await finish(client, sh(f"e{n}", "(sleep 0.01 &) ; (setsid true &); true", background=True))
    await asyncio.sleep(0.3)
    _, out, _ = await finish(client, sh("look", "grep -l 'State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l"))
    assert out == b"0\n"


async def test_commands_give_way_in_memory_and_time(client: Supervisor) -> None:
    _, out, _ = await finish(
        client, sh("a", "cat /proc/self/oom_score_adj; nice; ulimit -c; cat /proc/self/oom_score_adj")
    )
    score, niceness, core, _ = out.split()
    assert int(score) >= 500
    assert int(niceness) >= 5
    assert core == b"0"


async def test_no_new_privileges(client: Supervisor) -> None:
    _, out, _ = await finish(client, sh("a", "grep -E 'NoNewPrivs|CapEff' /proc/self/status"))
    assert out.split() == [b"CapEff:", b"0" * 16, b"NoNewPrivs:", b"1"]


async def test_the_supervisor_cannot_be_looked_into(client: Supervisor, sandbox: Sandbox) -> None:
    _, out, _ = await finish(
        client, sh("a", "for f in environ mem maps fd/0 root/etc; do cat /proc/1/$f >/dev/null 2>&1 && echo read $f; "
                        "(: > /proc/1/$f) 2>/dev/null && echo wrote $f; done; ls /proc/1/fd 2>&1 | tail -1")
    )  # fmt: skip
    assert b"read" not in out
    assert b"wrote" not in out
    assert b"Permission denied" in out
