"""What every activity does around its work: heartbeats, faults as failures, and work on a loop of its own.

The work runs where `elsewhere` puts it (in a worker: another thread's event loop), so that nothing it does can keep the
heartbeats from being sent.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from temporalio import activity

from agents.contracts.errors import LonghaulError
from workflows import failures, options

T = TypeVar("T")


class Elsewhere(Protocol):
    """Runs a coroutine on the loop that owns the adapters. Cancelling waits until the coroutine has ended."""

    async def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """Its result."""
        ...


async def doing(elsewhere: Elsewhere, work: Coroutine[Any, Any, T], *, gives_up: bool = True) -> T:
    """Run one activity's work with heartbeats. What nobody expected, and what may never pass, is tried so often and
    is then final (`failures.ATTEMPTS`), unless `gives_up` is False.

    Raises:
        ApplicationError: what went wrong, with its code.
    """
    beat = asyncio.create_task(_beat())
    try:
        return await elsewhere(work)
    except LonghaulError as error:
        raise failures.to_application(error, activity.info().attempt if gives_up else 0) from error
    except asyncio.CancelledError:
        raise
    except Exception as error:
        activity.logger.exception("an activity met what it did not expect")
        fault = failures.unexpected(error)
        raise failures.to_application(fault, activity.info().attempt if gives_up else 0) from error
    finally:
        beat.cancel()


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(options.HEARTBEAT_S)


async def here(work: Coroutine[Any, Any, T]) -> T:
    """An `Elsewhere` for tests: the caller's own loop."""
    return await work
