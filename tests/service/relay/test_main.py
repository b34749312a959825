import asyncio
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


async def test_killed_again_and_again_it_loses_and_repeats_nothing(servers: Settings, nats: NatsServer) -> None:
    async with fresh_database(servers) as settings, database(settings) as db:
        own = settings.model_copy(update={"nats_url": nats.url, "nats_user": ""})
        link = await connect(own, "test")
        reader = Reader()
        await reader.listen(link)
        writing = asyncio.create_task(tasks_with_writers(db, 10, 60))
        for _ in range(2):
            relay = Process("-m", "services.relay.main", settings=own)
            await relay.says("the relay is up")
            await asyncio.sleep(random.uniform(0.0, 0.2))
            relay.close()  # SIGKILL
        task_ids = await writing
        relay = Process("-m", "services.relay.main", settings=own)
        await wait_until_published(db)
        await reader.reaches(task_ids, 60)
        assert reader.gaps == []
        assert gapless(await kept(link), task_ids, 60)

        async with db.begin() as conn:
            task = await add_task(conn)
        await asyncio.sleep(1.5)  # it has slowed down to once a second
        await write(db, task, 1)
        began = time.monotonic()
        await NatsLive(link).poke()
        await reader.reaches([task], 1)
        assert time.monotonic() - began < 0.9, "a poke, or the clock's second?"

        began = time.monotonic()
        relay.signal(signal.SIGTERM)
        assert await relay.wait() == 0
        assert time.monotonic() - began < 5
        relay.close()
        await link.close()


async def test_it_starts_with_nothing_there_and_ends_when_told(nats: NatsServer) -> None:
    nowhere = Settings(pg_port=1, nats_url="nats://127.0.0.1:1", temporal_address="127.0.0.1:1")
    relay = Process("-m", "services.relay.main", settings=nowhere)
    await relay.says("the relay is up")
    await relay.says("starts: failing")
    await asyncio.sleep(3)
    relay.signal(signal.SIGTERM)
    assert await relay.wait() == 0
    said = relay.log()
    assert len(said.splitlines()) < 15, said
    assert '"level": "error"' not in said
    relay.close()
