"""Deltas at a pace that a bus and an eye can follow."""

import time
from collections.abc import Awaitable, Callable

from services.inference.failures import whole

INTERVAL_S = 0.05


class Coalescer:
    """Gathers pieces of text and hands them on at most once per `INTERVAL_S`, and the rest with `flush`."""

    def __init__(self, on_text: Callable[[str], Awaitable[None]], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_text = on_text
        self._clock = clock
        self._held: list[str] = []
        self._last = float("-inf")

    async def push(self, text: str) -> None:
        """Take a piece (an empty one only gives held text its chance)."""
        if text:
            self._held.append(text)
        if self._held and self._clock() - self._last >= INTERVAL_S:
            await self.flush()

    async def flush(self) -> None:
        """Hand on what is held."""
        text, self._held = "".join(self._held), []
        self._last = self._clock()
        if text:
            await self._on_text(whole(text))
