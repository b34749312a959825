"""Controllers come and go; commands do not notice."""

import asyncio
import os

import pytest

from agents.contracts.errors import ErrorCode
from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.messages import LinkLost, Refused
from services.sandbox.supervised.protocol import Fault, Frame, Message, Reason
from tests.contract.supervisor.box import Listening, Sandbox, sh

COUNT = "for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 0.1; done"


async def test_a_command_goes_on_without_a_controller_and_is_found_again(listening: Listening) -> None:
    first = await listening.connect()
    command = await first.start(sh("a", COUNT))
    async for piece in command.pieces():
        if piece.data == b"2\n":
            break
    await first.close()
    with pytest.raises(LinkLost):
        await command.closed()
    await asyncio.sleep(0.3)
    second = await listening.connect()
    again = await second.start(sh("a", COUNT))
    assert not again.started
    assert b"".join([piece.data async for piece in again.pieces()]) == b"".join(b"%d\n" % n for n in range(1, 9))
    assert (await again.closed()).reason == Reason.EXITED
    later = await second.attach("a", stdout=4)
    assert b"".join([piece.data async for piece in later.pieces()]) == b"3\n4\n5\n6\n7\n8\n"
    await second.close()


async def test_a_flood_without_a_controller_is_not_waited_with(listening: Listening) -> None:
    first = await listening.connect()
    await first.start(sh("a", "head -c 100000000 /dev/zero"))
    await first.close()
    second = await listening.connect()
    command = await second.attach("a", window=0)
    entry = await asyncio.wait_for(command.closed(), 20)
    assert (entry.stdout_bytes, entry.exit_code) == (100_000_000, 0)
    await second.close()


async def test_the_newer_controller_has_the_say(listening: Listening) -> None:
    old = await listening.connect(5)
    new = await listening.connect(6)
    await asyncio.sleep(0.05)
    with pytest.raises(LinkLost):
        await old.ping()
    with pytest.raises(Refused) as caught:
        await listening.connect(5)
    assert (caught.value.fault, caught.value.code) == (Fault.STALE, ErrorCode.FENCED)
    await new.ping()
    await new.close()
    await old.close()


async def test_two_instances_are_told_apart(listening: Listening, sandbox: Sandbox) -> None:
    one, other = await listening.connect(), await sandbox.start()
    assert one.greeting is not None
    assert other.greeting is not None
    assert one.greeting.instance != other.greeting.instance
    await one.close()
    await other.close()


class Pipes:
    """Two pipes that outlive their controllers, as an engine's attach does."""

    def __init__(self) -> None:
        self.theirs_in, self.ours_out = os.pipe()
        self.ours_in, self.theirs_out = os.pipe()
        self.reading: asyncio.ReadTransport

    async def controller(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Streams over copies of our ends."""
        loop = asyncio.get_running_loop()
        reader, unused = asyncio.StreamReader(), asyncio.StreamReader()
        self.reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(self.ours_in), "rb", 0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(unused), os.fdopen(os.dup(self.ours_out), "wb", 0)
        )
        return reader, asyncio.StreamWriter(transport, protocol, None, loop)

    async def leave(self, client: Supervisor) -> None:
        """Go, as a controller does whose process ends."""
        await client.close()
        self.reading.close()

    def close(self) -> None:
        for fd in (self.theirs_in, self.ours_out, self.ours_in, self.theirs_out):
            os.close(fd)


@pytest.mark.parametrize("left", [0, 1, 7, 19, 20, 25, 60])
async def test_a_stream_left_in_the_middle_of_a_frame_is_taken_over(sandbox: Sandbox, left: int) -> None:
    """The frame that its sender could not finish does nothing; answers to it are not taken for one's own."""
    pipes = Pipes()
    try:
        await sandbox.spawn(stdin=pipes.theirs_in, stdout=pipes.theirs_out)
        reader, writer = await pipes.controller()
        first = Supervisor(reader, writer)
        await first.greet()
        await first.start(sh("a", COUNT))
        cut = Frame(Message.EXEC, 77, 0, sh("never", "echo ran > /workspace/ran").encode()).encode()
        writer.write(Frame(Message.PING, 999, 0, b"left over").encode() + cut[:left])
        await writer.drain()
        await asyncio.sleep(0.1)
        await pipes.leave(first)
        second = Supervisor(*await pipes.controller())
        await second.greet(resync=True)
        assert {entry.id for entry in await second.list()} == {"a"}
        assert not (sandbox.workspace / "ran").exists()
        again = await second.attach("a")
        assert b"".join([piece.data async for piece in again.pieces()]) == b"".join(b"%d\n" % n for n in range(1, 9))
        await pipes.leave(second)
    finally:
        pipes.close()
