"""A channel to a supervisor: requests find their answers, events find their command."""

import asyncio
import contextlib
import itertools
import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass

from services.sandbox.supervised.messages import LinkLost, take_refusal, take_text
from services.sandbox.supervised.protocol import NONCE_BYTES, RESYNC, VERSION, Frame, Message, Reader

READ_BYTES = 1 << 18
HELLO_WAIT_S = 10.0
CLOSE_WAIT_S = 1.0
BEATS_PER_LINGER = 4


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who answered: `instance` is another one where the supervisor was started again."""

    instance: bytes
    max_payload: int
    linger_s: int
    job_uid: int
    own_uid: bool
    tells_oom: bool
    listens: bool
    """Whether there is a way out: a port in the sandbox whose connections come to us."""
    program: str


class Link:
    """Frames over a pair of streams. `on_event` is called for each event and each EXEC_OK, in the order in which
    they came, and must not wait; `on_lost` once, when the channel is closed."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_event: Callable[[Frame], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_event = on_event
        self._on_lost = on_lost
        self._tags = itertools.count(1)
        self._asked: dict[int, asyncio.Future[list[Frame]]] = {}
        self._parts: dict[int, list[Frame]] = {}
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._tasks: list[asyncio.Task[None]] = []
        self.lost = asyncio.Event()

    async def greet(self, epoch: int, *, resync: bool) -> Greeting:
        """Say HELLO and hear the answer. `resync`: another controller may have left the stream anywhere.

        Raises:
            LinkLost: nobody answers. Refused: a controller with a higher epoch was here.
        """
        if not self._tasks:
            self._tasks.append(asyncio.create_task(self._read(synced=not resync)))
        if resync:
            self._writer.write(RESYNC)
        payload = struct.pack("<IQ", VERSION, epoch) + self._nonce
        try:
            async with asyncio.timeout(HELLO_WAIT_S):
                answer = await self.ask(Message.HELLO, payload)
        except TimeoutError as error:
            raise LinkLost from error
        greeting = _greeting(answer.payload)
        if greeting.linger_s and len(self._tasks) == 1:
            self._tasks.append(asyncio.create_task(self._beat(greeting.linger_s / BEATS_PER_LINGER)))
        return greeting

    async def ask(self, message: Message, payload: bytes = b"", *, exec_: int = 0, flags: int = 0) -> Frame:
        """Send a request; its answer.

        Raises:
            Refused: it was answered by ERROR. LinkLost: it was not answered; it may have been done.
        """
        return (await self.ask_all(message, payload, exec_=exec_, flags=flags))[-1]

    async def ask_all(self, message: Message, payload: bytes = b"", *, exec_: int = 0, flags: int = 0) -> list[Frame]:
        """Send a request; all frames of its answer. Raises as `ask` does."""
        if self.lost.is_set():
            raise LinkLost
        tag = next(self._tags) & 0xFFFFFFFF or next(self._tags)
        answer: asyncio.Future[list[Frame]] = asyncio.get_running_loop().create_future()
        self._asked[tag] = answer
        try:
            self.tell(message, payload, exec_=exec_, flags=flags, tag=tag)
            await self._drain()
            return await answer
        finally:
            self._asked.pop(tag, None)
            self._parts.pop(tag, None)

    def tell(self, message: Message, payload: bytes = b"", *, exec_: int = 0, flags: int = 0, tag: int = 0) -> None:
        """Send and expect nothing."""
        if not self.lost.is_set():
            self._writer.write(Frame(message, tag, exec_, payload, flags).encode())

    async def close(self) -> None:
        """Let go of the channel."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_WAIT_S):
                await self._writer.wait_closed()
        except TimeoutError:  # what is still to be sent is taken by nobody
            self._writer.transport.abort()
        except ConnectionError:
            pass
        self._lose()

    async def _drain(self) -> None:
        with contextlib.suppress(ConnectionError):  # the reader tells
            await self._writer.drain()

    async def _beat(self, pause_s: float) -> None:
        with contextlib.suppress(LinkLost):
            while True:
                await asyncio.sleep(pause_s)
                await self.ask(Message.PING)

    async def _read(self, *, synced: bool) -> None:
        frames = Reader(synced=synced)
        try:
            while data := await self._reader.read(READ_BYTES):
                for frame in frames.feed(data):
                    self._take(frame)
        except ConnectionError:
            pass
        finally:
            self._lose()

    def _take(self, frame: Frame) -> None:
        if frame.tag == 0:
            self._on_event(frame)
            return
        answer = self._asked.get(frame.tag)
        if answer is None or answer.done():
            return
        if frame.message == Message.HELLO_OK and frame.payload[4 : 4 + NONCE_BYTES] != self._nonce:
            return  # an answer to the controller before
        parts = self._parts.setdefault(frame.tag, [])
        parts.append(frame)
        if frame.message == Message.ERROR:
            answer.set_exception(take_refusal(frame.payload))
        elif frame.message != Message.ENTRY:
            if frame.message == Message.EXEC_OK:  # what follows it is already about the new subscription
                self._on_event(frame)
            answer.set_result(parts)

    def _lose(self) -> None:
        self.lost.set()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_exception(LinkLost())
        self._on_lost()


def _greeting(payload: bytes) -> Greeting:
    instance = payload[20:36]
    most, linger, uid, bits = struct.unpack_from("<IIII", payload, 36)
    program, _ = take_text(payload, 52)
    return Greeting(instance, most, linger, uid, bool(bits & 1), bool(bits & 2), bool(bits & 4), program)
