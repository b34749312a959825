"""Trying again inside a burst: what is paid for or done is not thrown away because the database blinked."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agents.contracts.errors import ErrorCode, LonghaulError
from workflows.clock import Clock

T = TypeVar("T")

PASSING = frozenset(
    {
        ErrorCode.STORE_UNAVAILABLE,
        ErrorCode.OBJECTS_UNAVAILABLE,
        ErrorCode.STORAGE_FULL,
        ErrorCode.RUNNER_UNAVAILABLE,
        ErrorCode.SPAWN_FAILED,
        ErrorCode.UNAVAILABLE,
    }
)
"""Faults of what is around us; the same call is tried again, under the same key."""

FIRST_DELAY_S = 0.05
MAX_DELAY_S = 5.0


async def persist(call: Callable[[], Awaitable[T]], clock: Clock, patience_s: float) -> T:
    """Call until it is not a passing fault any more, at most for `patience_s`; then the fault goes up."""
    give_up = clock.monotonic() + patience_s
    delay = FIRST_DELAY_S
    while True:
        try:
            return await call()
        except LonghaulError as fault:
            if fault.code not in PASSING or clock.monotonic() + delay > give_up:
                raise
        await asyncio.sleep(delay)
        delay = min(delay * 2, MAX_DELAY_S)
