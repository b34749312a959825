"""How a human act or a shutdown reaches a burst that waits for a model or a command."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from agents.contracts.errors import LonghaulError
from agents.contracts.run import AgentRef, BurstReason
from workflows.ports import Ledger, Live

T = TypeVar("T")

POLL_S = 5.0
"""How often the control rows are read where no message says that they changed."""


class Interrupted(Exception):
    """What was waited for has to be left: a cancel was asked for, or the worker shuts down."""

    def __init__(self, reason: BurstReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Interrupts:
    """Watches the controls of one task while a burst runs. Rows are the truth: a message only has them read at once."""

    def __init__(self, ledger: Ledger, live: Live, ref: AgentRef, drain: "Future[None]") -> None:
        self._ledger = ledger
        self._live = live
        self._ref = ref
        self._wake = asyncio.Event()
        self._cancel: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drain = asyncio.wrap_future(drain)
        self._unsubscribe: Callable[[], Awaitable[None]] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        task_id = self._ref.place.task_id
        self._unsubscribe = await self._live.on_control(self._ref.tenant_id, task_id, self._wake.set)
        self._watch = asyncio.create_task(self._poll())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watch:
            self._watch.cancel()
        if self._unsubscribe:
            await self._unsubscribe()

    @property
    def cancelled(self) -> bool:
        """Whether the rows say that the task shall be cancelled."""
        return self._cancel.done()

    @property
    def draining(self) -> bool:
        """Whether the worker shuts down."""
        return self._drain.done()

    def check(self) -> None:
        """Raises `Interrupted` where an interrupt has come."""
        if self.cancelled:
            raise Interrupted(BurstReason.CANCELLED)
        if self.draining:
            raise Interrupted(BurstReason.DRAIN)

    def cancel(self) -> None:
        """The rows were seen to ask for it."""
        if not self._cancel.done():
            self._cancel.set_result(None)

    async def race(
        self, work: Coroutine[Any, Any, T], grace_s: float, on_cancel: Callable[[], Awaitable[None]] | None = None
    ) -> T:
        """The result of `work`, unless an interrupt comes first; a drain gives it `grace_s` more. On a cancel
        `on_cancel` is awaited, and a result that it brings about is taken.

        Raises:
            Interrupted: it was left; what it had begun goes on without anyone waiting.
        """
        task = asyncio.ensure_future(work)
        left: set[asyncio.Future[Any]] = {task, self._cancel}
        try:
            await asyncio.wait({*left, self._drain}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and not self.cancelled:
                await asyncio.wait(left, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and self.cancelled and on_cancel is not None:
                await on_cancel()
                await asyncio.wait({task}, timeout=grace_s)
            if task.done():
                return task.result()
            raise Interrupted(BurstReason.CANCELLED if self.cancelled else BurstReason.DRAIN)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def pause(self, seconds: float) -> None:
        """Sleep, less where something happens."""
        await asyncio.wait({self._cancel, self._drain}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def _poll(self) -> None:
        while not self.cancelled:
            try:
                async with asyncio.timeout(POLL_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self._look()

    async def _look(self) -> None:
        try:
            controls = await self._ledger.controls(self._ref)
        except LonghaulError:
            return  # the store is away: the next look will tell
        if controls.cancel_requested:
            self.cancel()
