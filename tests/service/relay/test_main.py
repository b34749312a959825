import asyncio
import json
import random
import signal
import time
from collections.abc import Iterator

import pytest

from services.mailbox.link import connect
from services.mailbox.live import NatsLive
from services.settings import Settings
from tests.service.relay.fields import Reader, gapless, kept, tasks_with_writers, wait_until_published, write
from tests.service.rooms import NatsServer, Process, add_task, database, fresh_database


@pytest.fixture
def nats() -> Iterator[NatsServer]:
    server = NatsServer()
    server.start()
    yield server
    server.close()


async def test_killed_again_and_again_it_loses_and_repeats_nothing(owner: Settings, nats: NatsServer) -> None:
    async with fresh_database(owner) as settings, database(settings) as db:
        own = settings.model_copy(update={"nats_url": nats.url, "nats_user": ""})
        link = await connect(own, "test")
        reader = Reader()
        await reader.listen(link)
        writing = asyncio.create_task(tasks_with_writers(db, 10, 60))
        for _ in range(2):
            with Process("-m", "services.relay.main", settings=own) as relay:
                await relay.says("the relay is up")
                await asyncio.sleep(random.uniform(0.0, 0.2))
        task_ids = await writing
        with Process("-m", "services.relay.main", settings=own) as relay:
            await relay.says("the relay is up")  # it may find nothing left to publish
            await wait_until_published(db)
            await reader.reaches(task_ids, 60)
            assert reader.gaps == []
            assert gapless(await kept(link), task_ids, 60)
            await ends_well(relay)
        await link.close()


async def test_a_poke_is_faster_than_its_clock(owner: Settings, nats: NatsServer) -> None:
    async with fresh_database(owner) as settings, database(settings) as db:
        own = settings.model_copy(update={"nats_url": nats.url, "nats_user": ""})
        link = await connect(own, "test")
        reader = Reader()
        await reader.listen(link)
        async with db.begin() as conn:
            task = await add_task(conn)
        with Process("-m", "services.relay.main", settings=own) as relay:
            await relay.says("the relay is up")
            await asyncio.sleep(2)  # it has slowed down to once a second
            waits = []
            for seq in range(1, 6):
                await write(db, task, 1)
                began = time.monotonic()
                await NatsLive(link).poke()
                await reader.reaches([task], seq)
                waits.append(time.monotonic() - began)
                await asyncio.sleep(1.2)
            assert sorted(waits)[2] < 0.4, waits
            await ends_well(relay)
        await link.close()


async def ends_well(relay: Process) -> None:
    began = time.monotonic()
    relay.signal(signal.SIGTERM)
    assert await relay.wait() == 0
    assert time.monotonic() - began < 10


async def test_it_starts_with_nothing_there_and_ends_when_told(nats: NatsServer) -> None:
    nowhere = Settings(pg_port=1, nats_url="nats://127.0.0.1:1", temporal_address="127.0.0.1:1")
    with Process("-m", "services.relay.main", settings=nowhere) as relay:
        await relay.says("the relay is up")
        await relay.says("queue: failing")
        await asyncio.sleep(3)
        await ends_well(relay)
        said = relay.log()
    lines = [json.loads(line)["message"] for line in said.splitlines()]
    assert len(set(lines)) == len(lines), said  # each loop says once that it fails, however often it tries
    assert len([line for line in lines if ": failing, will be tried again: " in line]) > 5, said
    assert '"level": "error"' not in said
