"""Connections from inside a sandbox, as pairs of streams: what its commands open to the supervisor's port comes here.

Each side may send as much as the other has room for, so a slow end holds up nobody but its own connection.
"""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable

from services.sandbox.supervised.link import Link
from services.sandbox.supervised.protocol import NET_WINDOW, Flag, Frame, Message

PIECE = 32 << 10
_HIGH, _LOW = NET_WINDOW, NET_WINDOW // 4
_LOG = logging.getLogger(__name__)

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Net:
    """The connections of one sandbox. They are refused until `serve` says who takes them, and end with the channel."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._serve: Serve | None = None
        self._open: dict[int, tuple[_Channel, asyncio.Task[None]]] = {}

    def serve(self, serve: Serve) -> None:
        """From now on every connection is given to `serve`, which is cancelled when the connection goes."""
        self._serve = serve

    def __len__(self) -> int:
        return len(self._open)

    def on_event(self, frame: Frame) -> None:
        """Take an event of the network."""
        if frame.message == Message.NET_OPEN:
            self._begin(frame.exec)
        elif (held := self._open.get(frame.exec)) is None:
            return  # closed here, which the other side did not know yet
        elif frame.message == Message.NET_OVER:
            self._end(frame.exec, orderly=bool(frame.flags & Flag.END))
        else:
            held[0].on_event(frame)

    def on_lost(self) -> None:
        """The channel to the sandbox is closed."""
        for number in list(self._open):
            self._end(number, orderly=False)

    def _begin(self, number: int) -> None:
        if self._serve is None:
            self._link.tell(Message.NET_CLOSE, exec_=number)
            return
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        channel = _Channel(self._link, number, protocol, self._forget)
        protocol.connection_made(channel)
        writer = asyncio.StreamWriter(channel, protocol, reader, asyncio.get_running_loop())
        task = asyncio.ensure_future(_served(self._serve, reader, writer))
        self._open[number] = channel, task

    def _end(self, number: int, *, orderly: bool) -> None:
        channel, task = self._open[number]
        channel.lost(None if orderly else ConnectionResetError("the connection is over"))
        if not orderly:  # what it does at the other end may go on for long without looking here
            task.cancel()

    def _forget(self, number: int) -> None:
        self._open.pop(number, None)


async def _served(serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await serve(reader, writer)
    except Exception:  # one connection's fault is no other's
        _LOG.exception("a connection of a sandbox failed")
    finally:
        if not writer.is_closing():
            writer.transport.abort()


class _Channel(asyncio.Transport):
    """One connection as asyncio's streams want it."""

    def __init__(
        self, link: Link, number: int, protocol: asyncio.StreamReaderProtocol, forget: Callable[[int], None]
    ) -> None:
        super().__init__()
        self._link = link
        self._number = number
        self._protocol = protocol
        self._forget = forget
        self._credit = NET_WINDOW
        self._waiting = bytearray()
        self._writing_paused = self._reading_paused = False
        self._eof = self._closing = self._gone = False
        self._taken = 0

    def on_event(self, frame: Frame) -> None:
        """Bytes of the sandbox, their end, or room for more of ours."""
        if frame.message == Message.NET_TAKEN:
            self._credit += struct.unpack("<I", frame.payload)[0]
            self._flush()
            return
        if self._closing:
            return
        if frame.flags & Flag.END:
            self._protocol.eof_received()
            return
        self._taken += len(frame.payload)
        self._protocol.data_received(frame.payload)
        self._give_credit()

    def lost(self, error: Exception | None) -> None:
        """It is over: whoever reads or writes learns it."""
        if self._gone:
            return
        self._gone = self._closing = True
        self._waiting.clear()
        self._forget(self._number)
        self._protocol.connection_lost(error)

    def _give_credit(self) -> None:
        if self._taken * 2 < NET_WINDOW or self._reading_paused or self._gone:
            return
        self._link.tell(Message.NET_CREDIT, struct.pack("<I", self._taken), exec_=self._number)
        self._taken = 0

    def pause_reading(self) -> None:
        """The reader holds enough."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """The reader wants more."""
        self._reading_paused = False
        self._give_credit()

    def is_reading(self) -> bool:
        """Whether bytes are wanted."""
        return not self._reading_paused and not self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, or hold until there is room."""
        if self._closing or self._eof:
            return
        self._waiting += data
        self._flush()
        if len(self._waiting) > _HIGH and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _flush(self) -> None:
        while self._waiting and self._credit:
            size = min(len(self._waiting), self._credit, PIECE)
            self._link.tell(Message.NET_SEND, bytes(self._waiting[:size]), exec_=self._number)
            del self._waiting[:size]
            self._credit -= size
        if self._writing_paused and len(self._waiting) <= _LOW:
            self._writing_paused = False
            self._protocol.resume_writing()
        if not self._waiting and self._closing and not self._gone:
            self._link.tell(Message.NET_CLOSE, exec_=self._number, flags=Flag.END)
            self.lost(None)
        elif not self._waiting and self._eof:
            self._eof = False
            self._link.tell(Message.NET_SEND, exec_=self._number, flags=Flag.END)

    def can_write_eof(self) -> bool:
        """It can be closed in one direction."""
        return True

    def write_eof(self) -> None:
        """Nothing more will be written."""
        self._eof = True
        self._flush()

    def is_closing(self) -> bool:
        """Whether it is closed, or will be when all is sent."""
        return self._closing

    def close(self) -> None:
        """Close it when all is sent."""
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def abort(self) -> None:
        """Close it now: the other end sees a reset."""
        if not self._gone:
            self._link.tell(Message.NET_CLOSE, exec_=self._number)
            self.lost(None)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for room."""
        return len(self._waiting)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The limits are the window's."""

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who takes the bytes."""
        return self._protocol
