"""A piece of work that is done again and again, whatever is away meanwhile."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from temporalio.service import RPCError

from agents.contracts.errors import LonghaulError

log = logging.getLogger(__name__)

_BACKOFF_MAX_S = 5.0


async def repeat(
    name: str,
    work: Callable[[], Awaitable[bool]],
    stop: asyncio.Event,
    *,
    every_s: float,
    idle_max_s: float | None = None,
    wake: asyncio.Event | None = None,
) -> None:
    """Do `work` until `stop`: at once again where it says that there is more, else after `every_s` (growing to
    `idle_max_s` while there is nothing) or when `wake` is set.

    A failure is logged once, its end once; meanwhile the pauses grow to 5 s.
    """
    idle_max_s = idle_max_s or every_s
    pause, failing = every_s, False
    while not stop.is_set():
        if wake:
            wake.clear()
        try:
            more = await work()
        except Exception as error:  # whatever it is, it is logged and tried again
            if not failing:
                _tell(name, error)
            failing, pause = True, min(max(pause, 0.25) * 2, _BACKOFF_MAX_S)
            await _pause(pause, stop, None)
            continue
        if failing:
            log.info("%s: working again", name)
        pause = every_s if more or failing else min(pause * 2, idle_max_s)
        failing = False
        if not more:
            woken = await _pause(pause, stop, wake)
            pause = every_s if woken else pause


def _tell(name: str, error: Exception) -> None:
    # what is away is a line; anything else is a fault of ours and is shown whole
    if isinstance(error, LonghaulError | RPCError | OSError | TimeoutError):
        log.warning("%s: failing, will be tried again: %s", name, error)
    else:
        log.error("%s: failing, will be tried again", name, exc_info=error)


async def _pause(seconds: float, stop: asyncio.Event, wake: asyncio.Event | None) -> bool:
    """Wait; whether `wake` ended it."""
    events = [stop, wake] if wake else [stop]
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
            with suppress(asyncio.CancelledError):
                await wait
    return bool(wake and wake.is_set())
