"""A command in a sandbox, as its controller holds it."""

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator

from services.sandbox.supervised.link import Link
from services.sandbox.supervised.messages import Entry, LinkLost, Piece, take_entry, take_piece
from services.sandbox.supervised.protocol import Flag, Frame, Message, State

STDIN_PIECE = 128 << 10


class Command:
    """Output comes to the one that subscribed last, as long as it is taken (`pieces`); what is not taken waits in the
    sandbox, and the command with it.

    With a `window` of 0 nothing comes, and the command never waits.
    """

    def __init__(self, link: Link, entry: Entry, *, started: bool) -> None:
        self._link = link
        self.entry = entry
        self.started = started
        """Whether this request started it (False: it was known)."""
        self.window = 0
        """The credit that was given with the request."""
        self._owed = 0
        self._pieces: deque[Piece] = deque()
        self._changed = asyncio.Event()
        self._streams_ended = 0
        self._written = entry.stdin_taken

    @property
    def id(self) -> str:
        """The controller's name for it."""
        return self.entry.id

    def on_event(self, frame: Frame) -> None:
        """Take an event that is about it."""
        if frame.message == Message.DATA:
            self._pieces.append(take_piece(frame.payload, end=bool(frame.flags & Flag.END)))
        elif frame.message in (Message.EXIT, Message.CLOSED):
            self.entry = take_entry(frame.payload, frame.exec)
        self.wake()

    async def exited(self) -> Entry:
        """Wait for the end of the main process.

        Raises:
            LinkLost: the channel went first; attach again.
        """
        return await self._reached(State.EXITED)

    async def closed(self) -> Entry:
        """Wait until nothing of it runs. Raises as `exited` does."""
        return await self._reached(State.CLOSED)

    async def _reached(self, state: State) -> Entry:
        while self.entry.state < state:
            await self._change()
        return self.entry

    async def _change(self) -> None:
        if self._link.lost.is_set():
            raise LinkLost
        self._changed.clear()
        await self._changed.wait()

    async def pieces(self) -> AsyncIterator[Piece]:
        """The output, as it comes, until both streams are over. Raises as `exited` does."""
        while self.window and self._streams_ended < 2:
            while not self._pieces:
                await self._change()
            piece = self._pieces.popleft()
            if piece.end:
                self._streams_ended += 1
                continue
            self._give_credit(len(piece.data))
            yield piece

    def _give_credit(self, taken: int) -> None:
        self._owed += taken
        if self._owed * 2 >= self.window:
            self._link.tell(Message.CREDIT, struct.pack("<I", self._owed), exec_=self.entry.handle)
            self._owed = 0

    async def write(self, data: bytes, *, end: bool = False) -> None:
        """Give it these bytes on stdin; returns when they are in its pipe. `end`: these are the last.

        Raises:
            Refused: ``NOT_RUNNING``, it reads no more. LinkLost.
        """
        parts = [data[at : at + STDIN_PIECE] for at in range(0, len(data), STDIN_PIECE)] or [b""]
        for number, part in enumerate(parts, 1):
            flags = Flag.END if end and number == len(parts) else 0
            payload = struct.pack("<Q", self._written) + part
            await self._link.ask(Message.STDIN, payload, exec_=self.entry.handle, flags=flags)
            self._written += len(part)

    async def signal(self, number: int, *, everything: bool = False) -> None:
        """Signal its process group, or all that it started."""
        await self._link.ask(Message.SIGNAL, struct.pack("<IB", number, everything), exec_=self.entry.handle)

    async def resize(self, rows: int, columns: int) -> None:
        """Its terminal has another size now."""
        await self._link.ask(Message.RESIZE, struct.pack("<HH", rows, columns), exec_=self.entry.handle)

    async def kill(self, grace_s: float = 0.0) -> Entry:
        """End all that it started; returns when that is so."""
        await self._link.ask(Message.KILL, struct.pack("<I", round(grace_s * 1000)), exec_=self.entry.handle)
        return await self.closed()

    def wake(self) -> None:
        """Let those who wait look again: the channel is closed."""
        self._changed.set()
