from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, select, text

from services.relay.reservations import settle_orphans
from services.settings import Settings
from services.store.database import Database
from services.store.tables import agents, budget_reservations, model_calls, rounds, tasks
from tests.service.rooms import add_task, database, fresh_database

NOW = datetime.now(UTC)
OLD = NOW - timedelta(minutes=5)


@pytest.fixture
async def db(owner: Settings) -> AsyncIterator[Database]:
    async with fresh_database(owner) as settings, database(settings) as db:
        yield db


async def reserve(db: Database, task_id: str, *, ended: bool, at: datetime = OLD, tokens: int = 100) -> None:
    """A reservation of an agent's first round, as a burst that was killed leaves it."""
    agent = f"agent_{task_id[-8:]}_{ended}_{at.timestamp()}"[:64]
    tenant = {"tenant_id": "default"}
    row = {**tenant, "id": agent, "task_id": task_id, "epoch": 0, "role": "executor", "revision": 1, "step": "fix"}
    call = {
        **tenant,
        "key": f"{agent}/m1",
        "agent_id": agent,
        "round": 1,
        "turn": 1,
        "k": 1,
        "fence": 1,
        "tier": "full",
    }
    held = {**tenant, "key": call["key"], "fence": 1, "task_id": task_id, "agent_id": agent, "reserved_at": at}
    async with db.begin() as conn:
        await conn.execute(
            insert(agents).values({**row, "state": "running", "activity": "", "activity_at": at, "created_at": at})
        )
        open_round = {**tenant, "agent_id": agent, "round": 1, "started_at": at, "ended_at": NOW if ended else None}
        await conn.execute(insert(rounds).values(open_round))
        await conn.execute(insert(model_calls).values({**call, "called_at": at}))
        await conn.execute(insert(budget_reservations).values({**held, "tokens": tokens, "cost_micro": 7}))
        more = "UPDATE tasks SET reserved_tokens = reserved_tokens + :n, reserved_cost_micro = reserved_cost_micro + 7"
        await conn.execute(text(more + " WHERE id = :id"), {"n": tokens, "id": task_id})


async def money(db: Database, task_id: str) -> tuple[int, int, int, int]:
    c = tasks.c
    async with db.begin() as conn:
        query = select(c.reserved_tokens, c.reserved_cost_micro, c.prompt_tokens, c.cost_micro).where(c.id == task_id)
        return tuple((await conn.execute(query)).one())


async def test_only_what_nobody_will_settle_is_settled_and_once(db: Database) -> None:
    async with db.begin() as conn:
        running, ended = await add_task(conn), await add_task(conn, ended_at=NOW)
    await reserve(db, running, ended=True)  # the round is over
    await reserve(db, running, ended=True, at=datetime.now(UTC), tokens=40)  # its end may be settling it at this moment
    await reserve(db, running, ended=False, tokens=30)  # still asking
    await reserve(db, ended, ended=False)  # the task is over
    for _ in range(2):
        assert not await settle_orphans(db)
        assert await money(db, running) == (70, 14, 100, 7)
        assert await money(db, ended) == (0, 0, 100, 7)
