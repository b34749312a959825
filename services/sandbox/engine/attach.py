"""The stream of a container's first process, as a pair of asyncio streams.

The engine sends output in frames: one byte that says which stream (1 stdout, 2 stderr), three of zero, a u32 length
(big endian), the bytes. Input goes as it is.
"""

import asyncio
import contextlib
import logging
import socket
import struct

log = logging.getLogger(__name__)

_STDOUT = 1
_HEAD = struct.Struct(">BxxxI")


class Attached:
    """One attachment. Closing it leaves the container as it is: its input stays open for the next one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pump: asyncio.Task[None]) -> None:
        self.reader = reader
        self.writer = writer
        self._pump = pump

    async def close(self) -> None:
        """Let go of the stream."""
        self._pump.cancel()
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


async def attached(sock: socket.socket) -> Attached:
    """Streams over the hijacked connection of an attach call."""
    sock.setblocking(False)
    raw, writer = await asyncio.open_connection(sock=sock)
    reader = asyncio.StreamReader()
    return Attached(reader, writer, asyncio.create_task(_pump(raw, reader)))


async def _pump(raw: asyncio.StreamReader, reader: asyncio.StreamReader) -> None:
    try:
        while True:
            kind, size = _HEAD.unpack(await raw.readexactly(_HEAD.size))
            data = await raw.readexactly(size)
            if kind == _STDOUT:
                reader.feed_data(data)
            else:
                log.warning("a sandbox's first process said: %.500s", data.decode(errors="replace"))
    except (asyncio.IncompleteReadError, OSError):
        pass  # the container has ended, or the engine has: its end of file tells
    finally:
        reader.feed_eof()
