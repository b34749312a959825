"""Server-sent events: the frames of one stream, and the response that sends them.

The cursor is taken first, then comes what was, then what is: a frame with an `id` for each event, ``delta`` frames
without one, ``: ping`` in silence, ``end`` behind the task's last event, and then the stream is closed.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.event import Event
from services.api.hub import Hub, Reader
from services.api.problems import invalid

PING_S = 15.0
MAX_STREAMS = 1_000
"""Open streams of one process."""
_SEND_S = 30.0
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

Allowed = Callable[[], Awaitable[bool]]
"""Whether the reader's key is still good."""


async def frames(
    hub: Hub, tenant_id: str, task_id: str, after: int, allowed: Allowed, *, ping_s: float = PING_S
) -> AsyncIterator[bytes]:
    """A task's stream behind number `after`. It stops without ``end`` where the reader had better come again.

    Raises:
        LonghaulError: before the first frame: ``NOT_FOUND``, ``VALIDATION_FAILED`` for a number that does not exist
            yet, ``RATE_LIMITED``, ``STORE_UNAVAILABLE``.
    """
    if hub.readers >= MAX_STREAMS:
        raise LonghaulError(ErrorCode.RATE_LIMITED, "too many streams are open here", retry_after_s=5)
    async with hub.watch(tenant_id, task_id) as (task, reader):
        if after > task.seq:
            await task.catch_up()
        if after > task.seq:
            raise invalid("after", f"there is no event {after} yet; the last one is {task.seq}")
        yield b"retry: 1000\n\n"
        seq, checked_at = after, time.monotonic()
        while not task.closing:
            reader.changed.clear()
            try:
                page = await task.after(seq)
            except LonghaulError:
                return
            for event in page:
                yield event_frame(event)
                seq = event.seq
            while reader.deltas:
                yield b"event: delta\ndata: " + reader.deltas.popleft() + b"\n\n"
            if task.ended and seq >= task.seq:
                yield f'event: end\ndata: {{"task_id":"{task_id}","seq":{seq}}}\n\n'.encode()
                return
            if time.monotonic() - checked_at >= ping_s:
                checked_at = time.monotonic()
                if not await allowed():
                    return
                yield b": ping\n\n"
            if not page:
                await _wait(reader, checked_at + ping_s - time.monotonic())


async def _wait(reader: Reader, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await reader.changed.wait()


def event_frame(event: Event) -> bytes:
    """An event as a frame. JSON escapes line ends, so the data is one line."""
    return f"id: {event.seq}\nevent: {event.data.type}\ndata: {event.model_dump_json()}\n\n".encode()


class EventStream(Response):
    """Sends frames until they end or nobody reads them any more. What fails before the first frame is a problem."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncIterator[bytes], status_code: int = 200) -> None:
        super().__init__(status_code=status_code, headers=_HEADERS)
        del self.headers["content-length"]
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send; returns at once when the client goes."""
        sending = asyncio.ensure_future(self._send(send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not sending.done():
                sending.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send) -> None:
        async with aclosing(self._frames) as frames:  # type: ignore[type-var]
            first = await anext(frames)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await _send_frame(send, first)
            with suppress(TimeoutError):  # a client that does not read is cut off
                async for frame in frames:
                    await _send_frame(send, frame)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_frame(send: Send, frame: bytes) -> None:
    async with asyncio.timeout(_SEND_S):
        await send({"type": "http.response.body", "body": frame, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
