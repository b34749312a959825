"""The supervisor's own life: where it runs, when it ends, who may tell it so."""

import asyncio
import os
import signal

import pytest

from services.sandbox.supervised.messages import LinkLost
from services.sandbox.supervised.protocol import Reason, State
from tests.contract.supervisor.box import Listening, Sandbox, Tools, finish, sh


async def test_it_refuses_to_be_anything_but_process_1(tools: Tools) -> None:
    sandbox = Sandbox(tools, as_pid_1=False)
    try:
        await sandbox.spawn()
        assert await sandbox.ended() == 97
    finally:
        await sandbox.remove()


async def test_it_refuses_where_the_callers_namespace_is_not_told(tools: Tools) -> None:
    sandbox = Sandbox(tools, "--outside-pid-ns", "0")  # the last one counts
    try:
        await sandbox.spawn()
        assert await sandbox.ended() == 97
    finally:
        await sandbox.remove()


@pytest.mark.parametrize("options", [("--linger", "x"), ("--surprise", "1"), ("--listen",), ("--job-uid", "5")])
async def test_wrong_arguments_are_told(tools: Tools, options: tuple[str, ...]) -> None:
    sandbox = Sandbox(tools, *options)
    try:
        await sandbox.spawn()
        assert await sandbox.ended() == 96
    finally:
        await sandbox.remove()


async def test_the_end_of_stdin_ends_everything(sandbox: Sandbox) -> None:
    client = await sandbox.start()
    await client.start(sh("a", "trap '' TERM HUP; sleep 60"))
    waiting = asyncio.create_task(client.ping())
    await waiting
    await client.close()
    assert await sandbox.ended() == 0


async def test_a_silent_controller_means_the_end(tools: Tools) -> None:
    sandbox = Sandbox(tools, "--linger", "1")
    try:
        await sandbox.spawn()
        assert await sandbox.ended() == 0
    finally:
        await sandbox.remove()


async def test_a_controller_that_beats_keeps_it(tools: Tools) -> None:
    sandbox = Sandbox(tools, "--linger", "1")
    try:
        client = await sandbox.start()
        assert client.greeting is not None
        assert client.greeting.linger_s == 1
        entry, _, _ = await finish(client, sh("a", "sleep 2.5"))
        assert entry.reason == Reason.EXITED
        await client.close()
    finally:
        await sandbox.remove()


async def test_nobody_for_too_long_means_the_end_with_a_socket_too(tools: Tools) -> None:
    sandbox = Listening(tools, "--linger", "1")
    try:
        await sandbox.open()
        client = await sandbox.connect()
        await client.start(sh("a", "sleep 60"))
        await client.close()
        assert await sandbox.ended() == 0
    finally:
        await sandbox.remove()


async def test_the_leash_ends_it(tools: Tools) -> None:
    held, pulled = os.pipe()
    sandbox = Sandbox(tools, "--leash", str(held))
    try:
        process = await sandbox.spawn(fds=[held])
        os.write(pulled, b"data is nobody's business")
        await asyncio.sleep(0.3)
        assert process.returncode is None
        os.close(pulled)
        pulled = -1
        assert await sandbox.ended() == 0
    finally:
        os.close(held)
        if pulled >= 0:
            os.close(pulled)
        await sandbox.remove()


async def test_sigterm_from_outside_ends_it_politely(sandbox: Sandbox) -> None:
    client = await sandbox.start()
    command = await client.start(sh("a", "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"))
    said = b""
    async for piece in command.pieces():
        said += piece.data
        if said == b"up\n":
            os.kill(sandbox.pid, signal.SIGTERM)
    assert said.endswith(b"bye\n")
    assert (await command.closed()).reason == Reason.KILLED
    assert await sandbox.ended() == 0


async def test_shutdown_ends_it(sandbox: Sandbox) -> None:
    client = await sandbox.start()
    await client.start(sh("a", "trap '' TERM; sleep 60"))
    await client.shutdown(0.2)
    assert await sandbox.ended() == 0
    with pytest.raises(LinkLost):
        await client.ping()


async def test_a_pause_counts_for_nobody(tools: Tools) -> None:
    """A sandbox that was frozen for longer than its linger and its commands' time goes on where it was."""
    sandbox = Listening(tools, "--linger", "2")
    try:
        await sandbox.open()
        first = await sandbox.connect()
        await first.start(sh("a", "sleep 60", timeout_s=3))
        await first.close()
        await asyncio.sleep(0.3)  # it has seen that and sleeps: frozen in the middle of work it could not tell
        os.kill(sandbox.pid, signal.SIGSTOP)
        await asyncio.sleep(5)
        os.kill(sandbox.pid, signal.SIGCONT)
        second = await sandbox.connect()
        [entry] = await second.list()
        assert (entry.state, entry.deadline_ms is not None and entry.deadline_ms > 1500) == (State.RUNNING, True)
        command = await second.attach("a")
        assert (await command.closed()).reason == Reason.TIMEOUT
        await second.close()
    finally:
        await sandbox.remove()
