"""The queue: who gets a place and when, from rows alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from agents.contracts.errors import ErrorCode
from agents.contracts.run import TaskEnd, TaskRef
from agents.contracts.task import SLOT, StopReason
from services.relay.admission import Admission
from services.relay.old_answers import KEPT, purge
from services.relay.starts import Reconciler
from services.settings import Settings
from services.store import events, queue, task_views
from services.store import tasks as store
from services.store.database import Database
from services.store.tables import budget_reservations, idempotency, task_starts, tasks
from services.store.task_ends import write_end
from tests.service.relay.test_reservations import OLD, reserve
from tests.service.rooms import DIGEST, add_task, database, fresh_database

NOW = datetime.now(UTC)
SPEC: dict[str, Any] = {"limits": {}, "checks": []}


class Started:
    """In place of Temporal: notes who is started. `refuses` plays its absence."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.refuses = False

    async def start(self, ref: TaskRef, *, even_if_it_ran: bool = False) -> None:
        if self.refuses:
            raise ConnectionError("away")
        self.order.append(ref.task_id)


@pytest.fixture
async def db(owner: Settings) -> AsyncIterator[Database]:
    async with fresh_database(owner) as settings, database(settings) as db:
        yield db


def admission(db: Database, places: int, started: Started) -> Admission:
    return Admission(db, Reconciler(db, started, None), places)  # type: ignore[arg-type]


async def submit(db: Database, tenant_id: str, count: int = 1, *, age_s: float = 0, **more: object) -> list[str]:
    """Queued tasks, each a little younger than the one before."""
    async with db.begin() as conn:
        return [
            await add_task(
                conn,
                tenant_id=tenant_id,
                started=False,
                created_at=NOW + timedelta(seconds=n - age_s),
                **{"waiting_for": SLOT, "spec": SPEC, **more},
            )
            for n in range(count)
        ]


async def finish(db: Database, task_ids: Sequence[str]) -> None:
    for task_id in task_ids:
        async with db.begin() as conn:
            tenant_id = (await conn.execute(select(tasks.c.tenant_id).where(tasks.c.id == task_id))).scalar_one()
            end = TaskEnd(stop_reason=StopReason.COMPLETED)
            await write_end(conn, TaskRef(tenant_id=tenant_id, task_id=task_id), end, datetime.now(UTC))


async def row(db: Database, task_id: str) -> Any:
    async with db.begin() as conn:
        return (await conn.execute(select(tasks).where(tasks.c.id == task_id))).one()


async def admitted(db: Database) -> list[str]:
    """Tenants of the tasks that have their place, in the order they got it."""
    query = select(tasks.c.tenant_id).where(tasks.c.admitted_at.is_not(None)).order_by(tasks.c.admitted_at)
    async with db.begin() as conn:
        return list((await conn.execute(query)).scalars())


async def test_who_floods_does_not_delay_another(db: Database) -> None:
    started = Started()
    relay = admission(db, 4, started)
    flood = await submit(db, "flood", 100, age_s=1_000)
    await relay.round()
    assert started.order == flood[:4]
    [one] = await submit(db, "one")
    few = await submit(db, "few", 3)
    await relay.round()
    assert len(started.order) == 4, "there is no place free"
    await finish(db, flood[:2])
    await relay.round()
    assert set(started.order[4:]) == {one, few[0]}
    await finish(db, flood[2:4])
    await relay.round()
    assert set(started.order[6:]) == {few[1], flood[4]}, "the fewest places first, then the oldest turn"
    await finish(db, [one, *few[:2], flood[4]])
    await relay.round()
    assert set(started.order[8:]) == {few[2], *flood[5:8]}
    assert await admitted(db) == ["flood"] * 4 + ["few", "one"] + ["flood", "few"] * 2 + ["flood"] * 2


async def test_more_tenants_than_places_take_turns(db: Database) -> None:
    started = Started()
    relay = admission(db, 2, started)
    for n in range(5):
        await submit(db, f"t{n}", 4, age_s=10 - n)
    for _ in range(10):
        await relay.round()
        await finish(db, started.order[-2:])
    order = await admitted(db)
    assert len(order) == 20
    assert all(sorted(order[n : n + 5]) == ["t0", "t1", "t2", "t3", "t4"] for n in range(0, 20, 5))


async def test_one_that_waits_for_a_person_leaves_its_place_to_another(db: Database) -> None:
    started = Started()
    relay = admission(db, 2, started)
    ids = await submit(db, "t", 6)
    await relay.round()
    for what, expected in (("engine", 2), ("approval", 3)):
        async with db.begin() as conn:
            now = {"status": "waiting", "waiting_for": what}
            await conn.execute(update(tasks).where(tasks.c.id == ids[0]).values(now))
        await relay.round()
        assert len(started.order) == expected, what
    async with db.begin() as conn:  # it goes on: for a while one more than there are places
        await conn.execute(update(tasks).where(tasks.c.id == ids[0]).values(status="running", waiting_for=None))
    await finish(db, [ids[1]])
    await relay.round()
    assert len(started.order) == 3
    await finish(db, [ids[2]])
    await relay.round()
    assert len(started.order) == 4


async def test_two_relays_and_kills_between_give_no_place_twice(db: Database) -> None:
    started = Started()
    relays = [admission(db, 5, started) for _ in range(2)]
    ids = await submit(db, "t", 20)
    async with db.begin() as conn:  # one that died between the place and the start
        dead = await queue.admit(conn, 1)
    started.refuses = True  # and Temporal is away
    for relay in relays:
        with pytest.raises(ConnectionError):
            await relay.round()
    assert len(await admitted(db)) == 5
    started.refuses = False
    for _ in range(5):
        await asyncio.gather(*(relay.round() for relay in relays))
    assert dead[0].task_id == ids[0]
    assert set(started.order) == set(ids[:5])
    async with db.begin() as conn:
        left = await conn.execute(select(task_starts.c.task_id).where(task_starts.c.started_at.is_not(None)))
        assert set(left.scalars()) == set(ids[:5])


async def test_a_cancel_in_the_queue_is_the_end_at_once(db: Database) -> None:
    relay = admission(db, 1, Started())
    running, waiting, behind = await submit(db, "t", 3)
    await relay.round()
    async with db.begin() as conn:
        assert (await task_views.view(conn, "t", behind)).queue_position == 2
        assert (await store.cancel(conn, "t", waiting)).control_seq is None
        assert (await store.cancel(conn, "t", waiting)).control_seq is None
        assert (await store.cancel(conn, "t", running)).control_seq == 1
        view = await task_views.view(conn, "t", behind)
        assert (view.status.value, view.waiting_for, view.queue_position) == ("queued", SLOT, 1)
        assert (await task_views.view(conn, "t", running)).queue_position is None
    ended = await row(db, waiting)
    assert (ended.status, ended.stop_reason, ended.waiting_for) == ("cancelled", "cancelled", None)
    assert await types(db, waiting) == ["task.cancelled"]
    assert (await row(db, running)).status == "cancelling"


async def test_a_task_being_cancelled_at_this_moment_is_passed_over(db: Database) -> None:
    started = Started()
    first, second = await submit(db, "t", 2)
    async with db.begin() as conn:
        await store.cancel(conn, "t", first)
        async with asyncio.timeout(5):
            await admission(db, 1, started).round()
    assert started.order == [second]


async def test_a_deadline_passes_in_the_queue(db: Database) -> None:
    relay = admission(db, 1, Started())
    await submit(db, "t", age_s=100)
    [late] = await submit(db, "t", age_s=50, deadline_at=NOW - timedelta(seconds=20))
    [later] = await submit(db, "t", age_s=40, deadline_at=NOW + timedelta(hours=1))
    await relay.round()
    ended = await row(db, late)
    assert (ended.status, ended.stop_reason) == ("failed", "deadline")
    assert ended.error["code"] == ErrorCode.DEADLINE_EXCEEDED
    assert "wall_s = 30 " in ended.error["detail"]
    assert await types(db, late) == ["task.failed"]
    assert (await row(db, later)).ended_at is None


async def test_the_end_of_a_task_and_the_settling_of_orphans_lock_in_the_same_order(db: Database) -> None:
    async with db.begin() as conn:
        task_id = await add_task(conn)
    await reserve(db, task_id, ended=True)
    async with db.begin() as settling:
        mine = budget_reservations.c.task_id == task_id
        await settling.execute(update(budget_reservations).where(mine).values(settled_at=OLD))
        ending = asyncio.create_task(finish(db, [task_id]))
        await asyncio.sleep(0.5)  # now it waits for the reservation, and must not hold the task
        await settling.execute(update(tasks).where(tasks.c.id == task_id).values(prompt_tokens=100))
    await asyncio.wait_for(ending, 10)
    assert (await row(db, task_id)).prompt_tokens == 100


async def test_old_answers_are_deleted_and_young_ones_kept(db: Database) -> None:
    answer = {"tenant_id": "t", "body_sha256": DIGEST, "status": 202, "location": "/", "answer": {}}
    rows = [
        {**answer, "key": f"{days}/{n}", "created_at": NOW - timedelta(days=days)}
        for days in (0, 6, 8)
        for n in range(700)
    ]
    rows += [{**answer, "key": f"old/{n}", "created_at": NOW - KEPT - timedelta(days=9)} for n in range(700)]
    async with db.begin() as conn:
        await conn.execute(insert(idempotency), rows)
    assert [await purge(db), await purge(db), await purge(db)] == [True, False, False]
    async with db.begin() as conn:
        left = list((await conn.execute(select(idempotency.c.key))).scalars())
    assert len(left) == 1_400
    assert {key.split("/")[0] for key in left} == {"0", "6"}


async def types(db: Database, task_id: str) -> list[str]:
    async with db.begin() as conn:
        found = await events.read(conn, tenant_id="t", task_id=task_id)
    return [event.data.type for event in found]
