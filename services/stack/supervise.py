"""Keeping one process alive: start, readiness, restart with back-off, giving up, stopping."""

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.stack.errors import StackError
from services.stack.logs import tail
from services.stack.spawn import Process, Spawner
from services.stack.unit import NotReady, Unit


@dataclass(frozen=True)
class Patience:
    """How often a process may fail in a row, each time before it was ready for `steady_s`, and the pauses between."""

    failures: int = 8
    steady_s: float = 20.0
    first_pause_s: float = 0.2
    longest_pause_s: float = 5.0


class Supervised:
    """A unit under supervision. `state` is one of: starting, ready, restarting, failed, stopping, stopped; `detail`
    says why it is not ready, where that is known."""

    def __init__(
        self,
        unit: Unit,
        spawner: Spawner,
        changed: Callable[[], None],
        patience: Patience = Patience(),
        excused: Callable[[], bool] = lambda: False,
    ) -> None:
        """`changed` is called after every change of what is told of it. While `excused` (a full disk) it is never
        given up."""
        self.unit = unit
        self._patience = patience
        self.state = "stopped"
        self.since = time.time()
        self.restarts = 0
        self.detail = ""
        self.failed: asyncio.Future[StackError] = asyncio.get_running_loop().create_future()
        self._ready = asyncio.Event()
        self._spawner = spawner
        self._changed = changed
        self._excused = excused
        self._process: Process | None = None
        self._ready_at: float | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The running process, if any."""
        return self._process.pid if self._process and not self._process.exited.done() else None

    async def start(self) -> None:
        """Start it and wait until it is ready.

        Raises:
            StackError: it failed too often; names the log.
        """
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.unit.name}")
        ready = asyncio.create_task(self._ready.wait())
        ends: set[asyncio.Future[Any]] = {ready, self.failed}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self.failed.done():
            raise self.failed.result()

    async def stop(self, grace_s: float | None = None) -> None:
        """Ask it to stop, and kill its group after the grace."""
        if self._keeper:
            while not self._keeper.done():  # a readiness probe that ends at that very moment can swallow a cancel
                self._keeper.cancel()
                await asyncio.wait({self._keeper}, timeout=0.5)
        if self._process and not self._process.exited.done():
            self._set("stopping")
            await end(self._process, self.unit.stop_signal, self.unit.grace_s if grace_s is None else grace_s)
        if self.state != "failed":
            self._set("stopped")

    async def renew(self, unless_ready_within_s: float = 0.0) -> None:
        """Have it started anew, unless it proves within that time that it works."""
        deadline = time.monotonic() + unless_ready_within_s
        while self.state == "ready" and time.monotonic() < deadline:
            if self.pid is not None and await self._ready_now(self.pid):
                return
            await asyncio.sleep(0.5)
        if self.state == "ready" and self._process and not self._process.exited.done():
            await end(self._process, self.unit.stop_signal, self.unit.grace_s)

    def kill(self) -> None:
        """SIGKILL its group and let it lie: the user is in a hurry."""
        if self._keeper:
            self._keeper.cancel()
        if self._process:
            self._process.kill()

    async def _keep(self) -> None:
        failures, patience = 0, self._patience
        while True:
            why = await self._live()
            failures = 1 if self._was_steady() else failures + 1
            if failures >= patience.failures and not self._excused():
                return self._give_up(why, failures)
            self.restarts += 1
            self._set("restarting")
            self._changed()  # one that was never ready keeps its state, and has a restart more all the same
            await asyncio.sleep(min(patience.first_pause_s * 2 ** min(failures - 1, 9), patience.longest_pause_s))

    async def _live(self) -> str:
        """One life of the process; returns how it ended."""
        unit = self.unit
        self._ready_at = None
        self._set("starting" if self.restarts == 0 else "restarting")
        try:
            self._process = process = self._spawner.spawn(
                unit.argv,
                env={**unit.env, **unit.env_now()},
                cwd=unit.cwd,
                output=unit.log,
                owner=unit.owner,
                pass_fds=unit.pass_fds,
            )
        except OSError as error:
            return f"cannot be started: {error}"
        self._changed()
        if await self._becomes_ready(process):
            self._ready_at, self.detail = time.monotonic(), ""
            self._set("ready")
            self._ready.set()
        elif not process.exited.done():
            process.kill()
            await process.exited
            return f"was not ready after {unit.ready_within_s:.0f} s{self.detail and f' ({self.detail})'}"
        return _how(await asyncio.shield(process.exited))

    async def _becomes_ready(self, process: Process) -> bool:
        deadline = time.monotonic() + self.unit.ready_within_s
        while not process.exited.done() and time.monotonic() < deadline:
            if await self._ready_now(process.pid):
                return not process.exited.done()
            await asyncio.wait({process.exited}, timeout=0.05)
        return False

    async def _ready_now(self, pid: int) -> bool:
        try:
            return await self.unit.ready(pid)
        except NotReady as error:
            self._explain(str(error))
        except Exception as error:  # a fault of the probe must not be the end of the supervision
            self._explain(repr(error))
        return False

    def _explain(self, detail: str) -> None:
        if detail != self.detail:
            self.detail = detail
            self._changed()

    def _was_steady(self) -> bool:
        return self._ready_at is not None and time.monotonic() - self._ready_at > self._patience.steady_s

    def _give_up(self, why: str, failures: int) -> None:
        self._set("failed")
        self.failed.set_result(
            StackError(
                f"{self.unit.name} {why}, {failures} times in a row. Its log: {self.unit.log}\n{tail(self.unit.log)}"
            )
        )

    def _set(self, state: str) -> None:
        if state != self.state:
            self.state, self.since = state, time.time()
            self._changed()


async def end(process: Process, stop_signal: signal.Signals, grace_s: float) -> None:
    """Signal a process, wait, kill its group."""
    process.signal(stop_signal)
    await asyncio.wait({process.exited}, timeout=grace_s)
    process.kill()
    await asyncio.shield(process.exited)


def _how(code: int) -> str:
    return f"exited with status {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
