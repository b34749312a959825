import asyncio
import signal
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import pytest
from sqlalchemy import insert, text

from agents.contracts.errors import LonghaulError
from agents.contracts.event import Event, TaskStarted
from services.mailbox.link import Link, connect
from services.relay.loop import repeat
from services.relay.outbox import Outbox
from services.settings import Settings
from services.store import events
from services.store.database import Database
from services.store.tables import events as rows
from tests.service.relay.fields import (
    Reader,
    gapless,
    kept,
    tasks_with_writers,
    unpublished,
    wait_until_published,
    write,
)
from tests.service.rooms import NatsServer, Process, add_task, database, fresh_database


class Room(NamedTuple):
    settings: Settings
    db: Database
    link: Link
    nats: NatsServer


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    server = NatsServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
async def room(owner: Settings, nats: NatsServer) -> AsyncIterator[Room]:
    async with fresh_database(owner) as settings, database(settings) as db:
        own = settings.model_copy(update={"nats_url": nats.url, "nats_user": ""})
        link = await connect(own, "test")
        yield Room(own, db, link, nats)
        await link.close()


async def drained(outbox: Outbox) -> None:
    while await outbox.drain():
        pass


async def test_two_thousand_events_of_twenty_tasks_arrive_in_order_without_gaps(room: Room) -> None:
    reader, stop, wake = Reader(), asyncio.Event(), asyncio.Event()
    await reader.listen(room.link)
    outbox = Outbox(room.db, room.link)
    relay = asyncio.create_task(repeat("outbox", outbox.drain, stop, every_s=0.05, wake=wake))
    task_ids = await tasks_with_writers(room.db, 20, 100)
    await reader.reaches(task_ids, 100)
    stop.set()
    await relay
    assert (reader.gaps, reader.repeats) == ([], 0)
    assert await unpublished(room.db) == 0
    assert gapless(await kept(room.link), task_ids, 100)


async def test_a_relay_killed_between_publish_and_mark_repeats_nothing_that_is_kept(room: Room) -> None:
    task_ids = await tasks_with_writers(room.db, 4, 10)
    reader = Reader()
    await reader.listen(room.link)
    for published in (17, 40):
        with Process("tests/service/relay/dying_relay.py", str(published), settings=room.settings) as dying:
            assert await dying.wait() == -signal.SIGKILL, dying.log()
        assert await unpublished(room.db) == 40, "nothing was marked"
    await drained(Outbox(room.db, room.link))
    await reader.reaches(task_ids, 10)
    assert reader.gaps == []
    # those under way at the kill arrive too: a reader without a memory would take them twice
    assert reader.repeats >= 17 + 40
    assert gapless(await kept(room.link), task_ids, 10)
    assert await unpublished(room.db) == 0


async def test_nats_killed_and_started_again_under_load_loses_nothing(room: Room) -> None:
    stop, wake = asyncio.Event(), asyncio.Event()
    outbox = Outbox(room.db, room.link)
    relay = asyncio.create_task(repeat("outbox", outbox.drain, stop, every_s=0.05, wake=wake))
    writing = asyncio.create_task(tasks_with_writers(room.db, 10, 60))
    for _ in range(2):
        await asyncio.sleep(0.4)
        room.nats.kill()
        await asyncio.sleep(0.4)
        room.nats.start()
    task_ids = await writing
    await wait_until_published(room.db)
    stop.set()
    await relay
    assert gapless(await kept(room.link), task_ids, 60)


async def test_a_stream_that_was_lost_is_made_again(room: Room) -> None:
    outbox = Outbox(room.db, room.link)
    await tasks_with_writers(room.db, 1, 3)
    await drained(outbox)
    await room.link.client.jetstream().delete_stream("EV")
    await tasks_with_writers(room.db, 1, 3)
    with pytest.raises(LonghaulError, match="no stream"):
        await outbox.drain()
    await drained(outbox)
    assert await unpublished(room.db) == 0


async def test_a_database_that_drops_its_connections_is_found_again(room: Room) -> None:
    outbox = Outbox(room.db, room.link)
    await drained(outbox)
    kill = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name AND pid <> pg_backend_pid()"
    )
    async with database(room.settings) as other:
        task_ids = await tasks_with_writers(other, 1, 4)
        async with other.begin() as conn:
            await conn.execute(kill, {"name": room.settings.pg_database})
    for _ in range(10):
        try:
            await drained(outbox)
            break
        except LonghaulError as error:
            assert error.code == "STORE_UNAVAILABLE"  # noqa: PT017 - how often it comes is not what is tested
    assert gapless(await kept(room.link), task_ids, 4)


async def test_an_event_waits_for_the_one_before_it(room: Room) -> None:
    """Nobody writes like this; if somebody did, 2 must not go out before 1."""
    now = datetime.now(UTC)
    outbox = Outbox(room.db, room.link)

    def row(task_id: str, seq: int) -> dict[str, object]:
        data = {"type": "task.started", "version": 1}
        return {"tenant_id": "default", "task_id": task_id, "seq": seq, "type": "task.started", "at": now, "data": data}

    async with room.db.begin() as conn:
        strange, sound = await add_task(conn), await add_task(conn)
        await conn.execute(insert(rows), [row(strange, 2), row(strange, 3), row(sound, 1)])
    late = room.db.begin()
    conn = await late.__aenter__()
    await conn.execute(insert(rows), [row(strange, 1)])
    await drained(outbox)
    assert await kept(room.link) == [(sound, 1)]
    await late.__aexit__(None, None, None)  # committed last, with the highest id
    for _ in range(3):
        await drained(outbox)
    assert await kept(room.link) == [(sound, 1), (strange, 1), (strange, 2), (strange, 3)]


async def test_held_back_tasks_do_not_hold_up_others(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.relay.outbox.BATCH", 5)
    now = datetime.now(UTC)
    data = {"type": "task.started", "version": 1}
    async with room.db.begin() as conn:
        strange = await add_task(conn)
        row = {"tenant_id": "default", "task_id": strange, "type": "task.started", "at": now, "data": data}
        await conn.execute(insert(rows), [{**row, "seq": seq} for seq in range(2, 12)])
    task_ids = await tasks_with_writers(room.db, 2, 7)
    await drained(Outbox(room.db, room.link))
    assert gapless(await kept(room.link), task_ids, 7)


async def test_only_one_publishes_at_a_time(room: Room) -> None:
    reader, stop = Reader(), asyncio.Event()
    await reader.listen(room.link)
    relays = [Outbox(room.db, room.link) for _ in range(3)]
    work = [asyncio.create_task(repeat("outbox", outbox.drain, stop, every_s=0.02)) for outbox in relays]
    task_ids = await tasks_with_writers(room.db, 5, 40)
    await reader.reaches(task_ids, 40)
    stop.set()
    await asyncio.gather(*work)
    assert (reader.gaps, reader.repeats) == ([], 0)


async def test_a_long_backlog_is_worked_off_in_little_memory(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.relay.outbox.BATCH", 50)
    async with room.db.begin() as conn:
        task_ids = [await add_task(conn) for _ in range(2)]
    for task in task_ids:
        async with room.db.begin() as conn:
            drafts = [events.Draft(TaskStarted())] * 400
            await events.append(conn, tenant_id="default", task_id=task, at=datetime.now(UTC), drafts=drafts)
            await conn.execute(
                text(
                    "UPDATE events SET data = data || jsonb_build_object('pad', repeat('x', 8000)) WHERE task_id = :t"
                ),
                {"t": task},
            )
    tracemalloc.start()
    await drained(Outbox(room.db, room.link))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert await unpublished(room.db) == 0
    assert peak < 3 << 20, "6 MB went through"


async def test_an_event_nats_would_refuse_does_not_stop_its_task(room: Room) -> None:
    async with room.db.begin() as conn:
        task = await add_task(conn)
    await write(room.db, task, 3)
    async with room.db.begin() as conn:
        await conn.execute(
            text("UPDATE events SET data = data || jsonb_build_object('pad', repeat('x', 1200000)) WHERE seq = 2")
        )
    await drained(Outbox(room.db, room.link))
    assert await kept(room.link) == [(task, 1), (task, 3)]
    assert await unpublished(room.db) == 0


async def test_what_goes_out_is_the_event(room: Room) -> None:
    bodies: list[bytes] = []
    await room.link.subscribe("lh.v1.ev.>", lambda _subject, body: bodies.append(body))
    async with room.db.begin() as conn:
        task = await add_task(conn)
        drafts = [events.Draft(TaskStarted(), agent_id="agent_1", step_id="fix", turn=4)]
        await events.append(conn, tenant_id="default", task_id=task, at=datetime.now(UTC), drafts=drafts)
        (stored,) = await events.read(conn, tenant_id="default", task_id=task)
        await conn.execute(text("UPDATE events SET data = data || '{\"of_next_year\": 1}'"))
    await drained(Outbox(room.db, room.link))
    async with asyncio.timeout(3):
        while not bodies:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert Event.model_validate_json(bodies[0]) == stored


async def test_a_poke_is_faster_than_the_clock(room: Room) -> None:
    reader, stop, wake = Reader(), asyncio.Event(), asyncio.Event()
    await reader.listen(room.link)
    async with room.db.begin() as conn:
        task = await add_task(conn)
    outbox = Outbox(room.db, room.link)
    relay = asyncio.create_task(repeat("outbox", outbox.drain, stop, every_s=30.0, wake=wake))
    await asyncio.sleep(0.5)
    await write(room.db, task, 1)
    wake.set()
    await reader.reaches([task], 1, timeout_s=3)
    stop.set()
    await asyncio.wait_for(relay, 3)


async def test_failing_work_is_told_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stop, calls = asyncio.Event(), 0

    async def work(fail: int) -> bool:
        nonlocal calls
        calls += 1
        if calls <= fail:
            raise OSError("away")
        stop.set()
        return False

    await asyncio.wait_for(repeat("it", partial(work, 3), stop, every_s=0.01), 10)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
