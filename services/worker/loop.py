"""A second event loop in a thread: what works lives there, so that heartbeats on the first are never late."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class WorkLoop:
    """Runs coroutines on its own loop. `start` before use, `stop` at the end."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="work", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, run on the work loop. Being cancelled cancels it there and waits until it has ended."""
        done: Future[T] = Future()
        started: Future[asyncio.Task[None]] = Future()
        self._loop.call_soon_threadsafe(lambda: started.set_result(self._loop.create_task(_into(done, work))))
        try:
            return await asyncio.shield(asyncio.wrap_future(done))
        except asyncio.CancelledError:
            task = started.result(timeout=5)
            self._loop.call_soon_threadsafe(task.cancel)
            await _ended(done)
            raise

    def stop(self) -> None:
        """End the loop; what still runs there is left."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=1)


async def _into(done: "Future[T]", work: Coroutine[Any, Any, T]) -> None:
    """Run `work` and put what came of it into `done`."""
    try:
        done.set_result(await work)
    except BaseException as error:
        done.set_exception(error)
        if not isinstance(error, asyncio.CancelledError | Exception):
            raise


async def _ended(done: "Future[T]") -> None:
    while not done.done():
        try:
            await asyncio.wait([asyncio.wrap_future(done)])
        except asyncio.CancelledError:
            continue
