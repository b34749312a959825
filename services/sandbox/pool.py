"""Sandboxes that were started before anybody asked for them, so that a claim costs a rename.

One is made for a set of limits and belongs to nobody: env, secrets and files come after the claim, which gives it its
id. It is handed out once and never comes back. Ready means that its supervisor answered.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from agents.contracts.errors import LonghaulError
from agents.contracts.sandbox import PoolState, SandboxLimits
from services.sandbox.backend import Backend
from services.sandbox.home import Home
from services.sandbox.making import Maker, Programs
from services.sandbox.supervised.client import Supervisor

ANY = SandboxLimits()
"""What most ask for: no limits of their own."""
RECENT_S = 300.0
"""For so long limits that were asked for are kept ready too, as often as they were asked for meanwhile."""
PING_S = 1.0
PAUSE_S = 5.0
"""Between tries, where one could not be made."""
CALM_S = 0.1
"""How long whoever has just claimed one has the host for himself, as long as others are ready: a start takes work."""
REMEMBERED = 1_000
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """A sandbox that runs and is nobody's."""

    home: Home
    supervisor: Supervisor


@dataclass
class Counts:
    """What claims found, and how long a start took, in ms."""

    warm: int = 0
    cold: int = 0
    starts_ms: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class Pool:
    """Keeps up to `size` ready for each set of limits in use; one is made at a time, so there are never more than
    wanted. `room` says whether the host has place for another."""

    def __init__(self, maker: Maker, backend: Backend, epoch: int, size: int, room: Callable[[], bool]) -> None:
        self._maker = maker
        self._backend = backend
        self._epoch = epoch
        self._size = size
        self._room = room
        self._ready: dict[SandboxLimits, deque[Started]] = {}
        self._asked: dict[SandboxLimits, deque[float]] = {}
        self._changed = asyncio.Event()
        self._counts = Counts()

    async def take(self, limits: SandboxLimits, programs: Programs) -> Started | None:
        """One that answers, or None: make one. It is the caller's from here on. All have the default template, and
        `programs` is its build in use: those with an older one are wanted by nobody any more."""
        ready = self._ready.get(limits)
        while ready:
            found = ready.popleft()  # without a pause before it: nobody else can have it
            if found.home.meta.build != programs.build:
                await self.drop(found)
                continue
            if await self._answers(found):
                self._counts.warm += 1
                return found
            _LOG.warning("a ready sandbox does not answer", extra={"sandbox_id": found.home.meta.id})
            await self.drop(found)
        self._counts.cold += 1
        return None

    def want(self, limits: SandboxLimits) -> None:
        """Note that one was claimed with these limits, which this host can hold."""
        self._asked.setdefault(limits, deque(maxlen=self._size or 1)).append(time.monotonic())
        self._changed.set()

    async def _answers(self, found: Started) -> bool:
        try:
            async with asyncio.timeout(PING_S):
                await found.supervisor.ping()
        except (LonghaulError, TimeoutError):
            return False
        return True

    async def drop(self, found: Started) -> None:
        """End one, whatever becomes of it."""
        await found.supervisor.close()
        try:
            await self._end(found.home)
        except (LonghaulError, OSError):
            _LOG.exception("a ready sandbox cannot be removed yet", extra={"sandbox_id": found.home.meta.id})

    async def _end(self, home: Home) -> None:
        await self._backend.stop(home)
        await asyncio.to_thread(self._maker.drop, home)

    async def keep(self) -> None:
        """Make what is wanted and is not there, and end what is wanted no more, for ever."""
        while self._size:
            self._changed.clear()
            try:
                done = await self._one_step()
            except (LonghaulError, OSError) as error:
                _LOG.warning("no sandbox can be made ready: %s", error)
                done = True
            if done:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_S):
                        await self._changed.wait()
                if all(self._ready.values()):
                    await asyncio.sleep(CALM_S)

    async def _one_step(self) -> bool:
        """Make one, or end one; whether there was nothing to do."""
        for limits in self._kinds():
            ready, wanted = self._ready.setdefault(limits, deque()), self._wanted(limits)
            if len(ready) > wanted:
                await self.drop(ready.popleft())
                return False
            if len(ready) < wanted and self._room():
                ready.append(await self._made(limits))
                return False
            if not wanted:
                self._ready.pop(limits), self._asked.pop(limits, None)
        return True

    async def _made(self, limits: SandboxLimits) -> Started:
        begun = time.monotonic()
        home = await asyncio.to_thread(lambda: self._maker.make(limits, self._maker.programs()))
        try:
            supervisor = await self._backend.start(home, self._epoch)
        except BaseException:
            await self._end(home)
            raise
        self._counts.starts_ms.append((time.monotonic() - begun) * 1000)
        return Started(home, supervisor)

    def _kinds(self) -> list[SandboxLimits]:
        return list({ANY: None, **dict.fromkeys(self._asked), **dict.fromkeys(self._ready)})

    def _wanted(self, limits: SandboxLimits) -> int:
        if limits == ANY:
            return self._size
        since = time.monotonic() - RECENT_S
        return sum(at > since for at in self._asked.get(limits, ()))

    def state(self) -> PoolState:
        """How many are ready, and what claims met since the start of the runner."""
        starts = sorted(self._counts.starts_ms)
        return PoolState(
            ready=sum(map(len, self._ready.values())),
            warm_claims=self._counts.warm,
            cold_claims=self._counts.cold,
            start_p50_ms=_at(starts, 0.5),
            start_p99_ms=_at(starts, 0.99),
        )

    async def close(self) -> None:
        """End all that are ready; `keep` must be over."""
        for ready in self._ready.values():
            while ready:
                await self.drop(ready.popleft())


def _at(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 3) if ordered else None
