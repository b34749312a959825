"""Tenants with tasks to run, and what they see of the API meanwhile."""

import asyncio
import random
import secrets
import time
from collections import defaultdict
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TypeVar

from agents.contracts.task import Limits, TaskSpec
from services.client import AsyncClient
from services.store import keys
from services.store.database import Database
from tests.stress.size import Size

T = TypeVar("T")

SIDE_BY_SIDE = 8
"""Submissions under way at once."""
READ_EVERY_S = 0.25
PAGE = 50


class Load:
    """The tenants; the first one is the flood. `seconds` is how long each kind of call took, in seconds."""

    def __init__(self, size: Size, api_url: str) -> None:
        self._size = size
        self._api_url = api_url
        self._ends = AsyncExitStack()
        self._chance = random.Random(size.seed)
        self._clients: dict[str, AsyncClient] = {}
        self.tasks: dict[str, list[str]] = defaultdict(list)
        self.seconds: dict[str, list[float]] = defaultdict(list)

    async def open(self, db: Database) -> None:
        """Make the tenants."""
        now = datetime.now(UTC)
        for n in range(self._size.tenants):
            tenant = f"{'few' if n else 'flood'}{n}-{secrets.token_hex(4)}"
            async with db.begin() as conn:
                await keys.create_tenant(conn, tenant_id=tenant, name=tenant, at=now)
                made = await keys.create_key(conn, tenant_id=tenant, name="stress", scopes=set(keys.Scope), at=now)
            client = AsyncClient(self._api_url, made.secret)
            self._clients[tenant] = await self._ends.enter_async_context(client)

    async def close(self) -> None:
        """Close the connections."""
        await self._ends.aclose()

    @property
    def tenants(self) -> list[str]:
        """Their names, the flood first."""
        return list(self._clients)

    @property
    def ids(self) -> list[str]:
        """Every task that was accepted."""
        return [task for tenant in self.tenants for task in self.tasks[tenant]]

    async def submit(self) -> None:
        """The flood first; when it is in, the others at once."""
        flood, *others = zip(self.tenants, self._size.shares, strict=True)
        await self._submit([flood[0]] * flood[1])
        turns = [tenant for n in range(max(share for _, share in others)) for tenant, share in others if n < share]
        await self._submit(turns)

    async def read(self) -> None:
        """Look at lists and events of tasks, until cancelled."""
        while True:
            tenant = self._chance.choice(self.tenants)
            await self._timed("list", self._clients[tenant].list(limit=PAGE))
            if self.tasks[tenant]:
                task = self._chance.choice(self.tasks[tenant])
                await self._timed("events", self._clients[tenant].events(task, limit=PAGE))
                await self._timed("task", self._clients[tenant].get(task))
            await asyncio.sleep(READ_EVERY_S)

    async def _submit(self, tenants: Sequence[str]) -> None:
        room = asyncio.Semaphore(SIDE_BY_SIDE)
        spec = TaskSpec(
            instruction="Run the commands.",
            tier="replay",
            recording=self._size.recording,
            limits=Limits(parallel=self._size.parallel, turns=100_000),
        )

        async def one(tenant: str) -> None:
            async with room:
                view = await self._timed("submit", self._clients[tenant].submit(spec))
                self.tasks[tenant].append(view.id)

        await asyncio.gather(*(one(tenant) for tenant in tenants))

    async def _timed(self, kind: str, call: Awaitable[T]) -> T:
        begun = time.perf_counter()
        answer = await call
        self.seconds[kind].append(time.perf_counter() - begun)
        return answer
