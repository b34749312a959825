"""The controller of one sandbox: starts commands, finds them again, works on files."""

import asyncio
import struct
from dataclasses import dataclass, replace
from typing import BinaryIO, Self
from weakref import WeakSet

from services.sandbox.supervised.command import Command
from services.sandbox.supervised.files import Files
from services.sandbox.supervised.link import Greeting, Link
from services.sandbox.supervised.messages import DEFAULT_WINDOW, Entry, Order, Piece, take_entry, text
from services.sandbox.supervised.net import Net
from services.sandbox.supervised.protocol import Frame, Message, Stream


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended, and its output as far as it came (`gap`: bytes that are missing in the middle)."""

    entry: Entry
    stdout: bytes
    stderr: bytes
    gap: int = 0


class Supervisor:
    """Use as a context manager, or `close` it. Closing ends nothing in the sandbox (over stdio: everything)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._opened: dict[int, Command] = {}
        self._latest: dict[int, Command] = {}
        self._all: dict[int, WeakSet[Command]] = {}
        self._link = Link(reader, writer, self._on_event, self._on_lost)
        self.files = Files(self._link)
        self.net = Net(self._link)
        self.greeting: Greeting | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def greet(self, epoch: int = 1, *, resync: bool = False) -> Greeting:
        """Become its controller. `resync` where another used the same pair of pipes before. Raises as `Link.greet`."""
        try:
            self.greeting = await self._link.greet(epoch, resync=resync)
        except BaseException:
            await self.close()
            raise
        return self.greeting

    async def close(self) -> None:
        """Let go of it."""
        await self._link.close()

    @property
    def lost(self) -> bool:
        """Whether the channel is closed."""
        return self._link.lost.is_set()

    async def ping(self) -> None:
        """Hear from it."""
        await self._link.ask(Message.PING)

    async def start(self, order: Order) -> Command:
        """Start a command, or find the one with its id.

        Raises:
            Refused: ``MISMATCH``, ``LIMIT``, ``SPAWN`` (nothing was started). LinkLost: it may have been started; ask
                again with the same id.
        """
        answer = await self._link.ask(Message.EXEC, order.encode())
        return self._held(answer, order.window)

    async def attach(self, id_: str, *, stdout: int = 0, stderr: int = 0, window: int = DEFAULT_WINDOW) -> Command:
        """Find a command, with its output from these offsets on (or as much of it as is still kept).

        Raises:
            Refused: ``NO_EXEC``. LinkLost.
        """
        payload = text(id_) + struct.pack("<QQI", stdout, stderr, window)
        return self._held(await self._link.ask(Message.ATTACH, payload), window)

    async def run(self, order: Order) -> Finished:
        """Start and take everything it says, until nothing of it runs. Raises as `start` does."""
        command = await self.start(order)
        return await collect(command)

    async def kept(self, command: Command) -> Finished:
        """Wait until nothing of it runs, then take what was kept of its output: head and tail."""
        entry = await command.closed()
        if not entry.total_bytes:
            return Finished(entry, b"", b"")
        return await collect(await self.attach(entry.id))

    async def forget(self, command: Command) -> None:
        """Drop an ended command's record and output in the sandbox; its id is free then.

        Raises:
            Refused: ``STILL_RUNNING``. LinkLost.
        """
        await self._link.ask(Message.FORGET, exec_=command.entry.handle)
        self._latest.pop(command.entry.handle, None)
        self._all.pop(command.entry.handle, None)

    async def list(self) -> list[Entry]:
        """Every command that is not forgotten."""
        frames = await self._link.ask_all(Message.LIST)
        return [take_entry(frame.payload, frame.exec) for frame in frames if frame.message == Message.ENTRY]

    async def shutdown(self, grace_s: float = 0.0) -> None:
        """End everything in the sandbox, and the supervisor."""
        await self._link.ask(Message.SHUTDOWN, struct.pack("<I", round(grace_s * 1000)))

    def _held(self, answer: Frame, window: int) -> Command:
        command = self._opened.pop(answer.tag)
        command.window = window
        return command

    def _on_event(self, frame: Frame) -> None:
        if frame.message == Message.EXEC_OK:
            entry = take_entry(frame.payload, frame.exec, 1)
            command = Command(self._link, entry, started=bool(frame.payload[0]))
            self._opened[frame.tag] = self._latest[frame.exec] = command
            self._all.setdefault(frame.exec, WeakSet()).add(command)
        elif frame.message == Message.DATA:
            if (latest := self._latest.get(frame.exec)) is not None:  # the last subscription is the one that counts
                latest.on_event(frame)
        elif Message.NET_OPEN <= frame.message <= Message.NET_OVER:
            self.net.on_event(frame)
        else:
            for command in list(self._all.get(frame.exec, ())):
                command.on_event(frame)

    def _on_lost(self) -> None:
        self.net.on_lost()
        for held in list(self._all.values()):
            for command in list(held):
                command.wake()


async def collect(command: Command) -> Finished:
    """Take all output of a command and wait for its end."""
    taken = [piece async for piece in command.pieces()]
    return finished(await command.closed(), taken)


def finished(entry: Entry, pieces: list[Piece]) -> Finished:
    """A command's end with its output, of which these are the pieces in their order."""
    outputs = [[piece for piece in pieces if piece.stream is stream] for stream in (Stream.STDOUT, Stream.STDERR)]
    stdout, stderr = (b"".join(piece.data for piece in output) for output in outputs)
    return Finished(replace(entry), stdout, stderr, sum(map(_gap, outputs)))


async def spill(command: Command, file: BinaryIO) -> Entry:
    """Write all output into a file of the controller, which no command can reach, as it comes; then wait for the end.
    Where output is gone already there are zeros. Both streams go to their offsets: start with `merge` for one."""
    async for piece in command.pieces():
        await asyncio.to_thread(_put, file, piece)
    return await command.closed()


def _put(file: BinaryIO, piece: Piece) -> None:
    file.seek(piece.offset)
    file.write(piece.data)


def _gap(pieces: list[Piece]) -> int:
    at = missing = 0
    for piece in pieces:
        missing += piece.offset - at
        at = piece.offset + len(piece.data)
    return missing
