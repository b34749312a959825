"""The stream of a container's first process, as a pair of asyncio streams.

The engine sends output in frames: one byte that says which stream (1 stdout, 2 stderr), three of zero, a u32 length
(big endian), the bytes. Input goes as it is.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Iterable
from typing import SupportsIndex

_STDOUT = 1
_HEAD = struct.Struct(">BxxxI")
_SAID_BYTES = 2000
_LOG = logging.getLogger(__name__)


class Output(asyncio.StreamReader):
    """What a container says on stdout. What it says on stderr is logged, and its end is kept in `said`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._held = bytearray()
        self._kind, self._left = 0, 0
        self.said = ""

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Take what came from the engine, frames or pieces of them."""
        self._held.extend(data)
        while self._held and (self._left or self._next()):
            piece = bytes(self._held[: self._left])
            del self._held[: len(piece)]
            self._left -= len(piece)
            if self._kind == _STDOUT:
                super().feed_data(piece)
            else:
                self._say(piece.decode(errors="replace"))

    def _next(self) -> bool:
        """Take the head of a frame, where it is there whole."""
        if len(self._held) < _HEAD.size:
            return False
        self._kind, self._left = _HEAD.unpack_from(self._held)
        del self._held[: _HEAD.size]
        return True

    def _say(self, text: str) -> None:
        self.said = (self.said + text)[-_SAID_BYTES:]
        _LOG.warning("a sandbox's first process said: %.500s", text.rstrip())


async def attached(sock: socket.socket) -> tuple[Output, asyncio.StreamWriter]:
    """Streams over the hijacked connection of an attach call. Closing them leaves the container as it is: its input
    stays open for the next one."""
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    output = Output(loop)
    protocol = asyncio.StreamReaderProtocol(output, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, sock=sock)
    return output, asyncio.StreamWriter(transport, protocol, output, loop)
