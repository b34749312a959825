"""Waiting for processes and for locks, without threads and without polling where the kernel can tell."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


async def held_end(fd: int, timeout_s: float | None) -> bool:
    """Wait until the process of a pidfd has ended; False where it has not within the time (None: however long)."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(fd, ended.set)
    try:
        await asyncio.wait_for(ended.wait(), timeout_s)
    except TimeoutError:
        return False
    else:
        return True
    finally:
        loop.remove_reader(fd)


class SharedLock:
    """Held by many sharers or by one owner; a waiting owner keeps new sharers out, so that its turn comes."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._sharers = 0
        self._owners_waiting = 0
        self._owned = False

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold it with others."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._owned and self._owners_waiting == 0)
            self._sharers += 1
        try:
            yield
        finally:
            async with self._changed:
                self._sharers -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def exclusive(self, timeout_s: float) -> AsyncIterator[None]:
        """Hold it alone.

        Raises:
            TimeoutError: it is still shared after the time.
        """
        async with self._changed:
            self._owners_waiting += 1
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait_for(lambda: not self._owned and self._sharers == 0)
                self._owned = True
            finally:
                self._owners_waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            async with self._changed:
                self._owned = False
                self._changed.notify_all()
