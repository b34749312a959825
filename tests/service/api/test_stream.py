"""The live stream: every number once and in order, whatever happens between server and reader; nothing left behind."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import httpx
import psutil  # type: ignore[import-untyped]
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.event import Event, StepStarted
from services.api import sse
from services.api.hub import Hub
from services.client import AsyncClient
from services.client.stream import Frame, Frames
from services.mailbox import link as nats
from services.mailbox import subjects
from services.settings import Settings
from services.store.database import Database
from tests.service.api.process import ApiProcess
from tests.service.api.world import Tenant, Writer, make_tenant, submit
from tests.service.rooms import NatsServer


@asynccontextmanager
async def opened(http: httpx.AsyncClient, task_id: str, **headers: str) -> AsyncIterator[AsyncIterator[Frame]]:
    """The frames of a stream."""
    async with http.stream("GET", f"/v1/tasks/{task_id}/events/stream", headers=headers, timeout=20) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"

        async def frames() -> AsyncGenerator[Frame]:
            cut = Frames()
            async for chunk in response.aiter_bytes():
                for frame in cut.feed(chunk):
                    yield frame

        async with aclosing(frames()) as found:
            yield found


async def numbers(frames: AsyncIterator[Frame]) -> list[int]:
    """All numbers up to the end."""
    seen: list[int] = []
    async for frame in frames:
        if frame.event == "end":
            assert json.loads(frame.data)["seq"] == seen[-1]
            continue
        assert frame.id is not None
        event = Event.model_validate_json(frame.data)
        assert (event.seq, event.data.type) == (int(frame.id), frame.event)
        seen.append(event.seq)
    return seen


async def test_backlog_then_live_while_events_are_written(http: httpx.AsyncClient, writer: Writer) -> None:
    task_id = await submit(http)
    await writer.steps(task_id, 30)

    async def later(after: int) -> list[int]:
        await asyncio.sleep(after * 0.05)
        async with opened(http, task_id) as frames:
            return await numbers(frames)

    readers = [asyncio.create_task(later(n)) for n in range(8)]
    for _ in range(4):
        await asyncio.gather(*(writer.steps(task_id, 25) for _ in range(3)))
    await writer.end(task_id)
    last = 1 + 30 + 300 + 1
    for seen in await asyncio.wait_for(asyncio.gather(*readers), 20):
        assert seen == list(range(1, last + 1))


async def test_a_backlog_of_many_pages(http: httpx.AsyncClient, writer: Writer) -> None:
    task_id = await submit(http)
    await writer.write(task_id, [StepStarted(title="x", round=1)] * 900)
    await writer.end(task_id)
    async with opened(http, task_id) as frames:
        assert await numbers(frames) == list(range(1, 903))


async def test_it_goes_on_behind_the_last_number(http: httpx.AsyncClient, writer: Writer) -> None:
    task_id = await submit(http)
    await writer.steps(task_id, 9)
    await writer.end(task_id)
    async with opened(http, task_id, **{"Last-Event-ID": "4"}) as frames:
        assert await numbers(frames) == list(range(5, 12))
    path = f"/v1/tasks/{task_id}/events/stream"
    async with http.stream("GET", path, params={"after": 9}) as response:
        assert (await response.aread()).count(b"\nid: ") == 2
    # a reader that has seen the end gets the end again, not silence
    async with opened(http, task_id, **{"Last-Event-ID": "11"}) as frames:
        assert [f.event async for f in frames] == ["end"]


async def test_deltas_come_between_without_a_number(http: httpx.AsyncClient, writer: Writer) -> None:
    task_id = await submit(http)
    async with opened(http, task_id) as frames:
        assert (await anext(frames)).event == "task.created"
        await writer.delta(task_id, "héllo\nworld")
        delta = await asyncio.wait_for(anext(frames), 5)
        assert (delta.event, delta.id) == ("delta", None)
        assert json.loads(delta.data)["text"] == "héllo\nworld"


async def test_live_is_fast_and_the_clock_helps_where_nobody_tells(
    http: httpx.AsyncClient, db: Database, tenant: Tenant, writer: Writer
) -> None:
    silent = Writer(db, tenant)
    task_id = await submit(http)
    loop = asyncio.get_running_loop()
    async with opened(http, task_id) as frames:
        await anext(frames)
        began = loop.time()
        await writer.steps(task_id, 1)
        assert (await anext(frames)).id == "2"
        assert loop.time() - began < 1.0
        await silent.steps(task_id, 3)  # nobody tells of these
        began = loop.time()
        assert [(await anext(frames)).id for _ in range(3)] == ["3", "4", "5"]
        assert loop.time() - began < 4.0
        await silent.steps(task_id, 2)
        await writer.steps(task_id, 1)  # a message with a gap before it
        assert [(await anext(frames)).id for _ in range(3)] == ["6", "7", "8"]


async def test_what_messages_claim_is_not_believed(http: httpx.AsyncClient, writer: Writer, tenant: Tenant) -> None:
    task_id = await submit(http)
    assert writer.link
    async with opened(http, task_id) as frames:
        await anext(frames)
        for body in (b"", b"\xff\xfe", b"{}", b"[" * 10_000, b"x" * 100_000):
            await writer.link.publish(subjects.event(tenant.id, task_id), body)
        await writer.steps(task_id, 1)
        assert (await asyncio.wait_for(anext(frames), 5)).id == "2"


async def test_a_reader_that_goes_away_leaves_nothing(own_api: ApiProcess, db: Database) -> None:
    own_api.start()
    tenant = await make_tenant(db, own_api.url)
    async with tenant.http() as http:
        task_id = await submit(http)
        async with tenant.http() as many, asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(_one_frame(many, task_id))
        for _ in range(100):
            if _connections(own_api) <= 1:
                break
            await asyncio.sleep(0.1)
        assert _connections(own_api) <= 1  # `http` keeps its own


def _connections(api: ApiProcess) -> int:
    found = psutil.Process(api.pid).net_connections("tcp")
    return sum(1 for c in found if c.laddr.port == api.settings.api_port and c.status == psutil.CONN_ESTABLISHED)


async def _one_frame(http: httpx.AsyncClient, task_id: str) -> None:
    async with opened(http, task_id) as frames:
        await anext(frames)


class CountingDatabase(Database):
    """Counts transactions."""

    count = 0

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        self.count += 1
        async with super().begin() as conn:
            yield conn


async def test_a_hundred_readers_are_one_for_the_database(
    http: httpx.AsyncClient, db: Database, tenant: Tenant, stack_settings: Settings
) -> None:
    task_id = await submit(http)
    counting = CountingDatabase(stack_settings.pg_url)
    hub, silent = Hub(counting), Writer(db, tenant)

    async def allowed() -> bool:
        return True

    async def read() -> list[str]:
        return [f.decode() async for f in sse.frames(hub, tenant.id, task_id, 1, allowed)]

    readers = [asyncio.create_task(read()) for _ in range(100)]
    await asyncio.sleep(0.5)
    assert (hub.watched, hub.readers) == (1, 100)
    assert counting.count <= 2
    began = asyncio.get_running_loop().time()
    for _ in range(3):
        await silent.steps(task_id, 5)
        await asyncio.sleep(0.7)
    await silent.end(task_id)
    found = await asyncio.wait_for(asyncio.gather(*readers), 10)
    took = asyncio.get_running_loop().time() - began
    assert {len([f for f in frames if f.startswith("id: ")]) for frames in found} == {16}
    assert all(frames[-1].startswith("event: end") for frames in found)
    assert counting.count <= 3 + took  # a poll each two seconds, not one a reader
    assert (hub.watched, hub.readers) == (0, 0)
    await counting.close()


async def test_pings_in_silence_and_the_end_of_a_revoked_key(
    http: httpx.AsyncClient, db: Database, tenant: Tenant
) -> None:
    task_id = await submit(http)
    good = True

    async def allowed() -> bool:
        return good

    hub = Hub(db)
    frames = sse.frames(hub, tenant.id, task_id, 1, allowed, ping_s=0.2)
    assert (await anext(frames)).startswith(b"retry:")
    assert [await anext(frames) for _ in range(2)] == [b": ping\n\n"] * 2
    good = False
    assert [f async for f in frames] == []
    assert hub.readers == 0


async def test_a_slow_reader_does_not_hold_the_others_up(http: httpx.AsyncClient, writer: Writer) -> None:
    task_id = await submit(http)
    async with opened(http, task_id) as slow:
        await anext(slow)
        for _ in range(10):
            await writer.write(task_id, [StepStarted(title="x" * 1_500, round=1)] * 200)
        await writer.end(task_id)
        async with opened(http, task_id) as quick:
            assert (await asyncio.wait_for(numbers(quick), 20))[-1] == 2_002
        assert await numbers(slow) == list(range(2, 2_003))


async def test_the_client_reads_on_through_a_killed_api(own_api: ApiProcess, db: Database) -> None:
    own_api.start()
    tenant = await make_tenant(db, own_api.url)
    writer = Writer(db, tenant)
    async with AsyncClient(own_api.url, tenant.key) as client, tenant.http() as http:
        task_id = await submit(http)
        seen: list[int] = []

        async def read() -> None:
            async for item in client.stream(task_id):
                assert isinstance(item, Event)
                seen.append(item.seq)

        reading = asyncio.create_task(read())
        await writer.steps(task_id, 10)
        while len(seen) < 5:  # noqa: ASYNC110 - the other side is a process
            await asyncio.sleep(0.05)
        own_api.kill()
        await writer.steps(task_id, 20)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(own_api.start)
        await writer.steps(task_id, 10)
        await writer.end(task_id)
        await asyncio.wait_for(reading, 30)
        assert seen == list(range(1, 43))


async def test_nats_killed_and_back(own_api: ApiProcess, db: Database) -> None:
    server = NatsServer()
    server.start()
    own_api.settings = own_api.settings.model_copy(update={"nats_url": server.url, "nats_user": ""})
    own_api.start()
    tenant = await make_tenant(db, own_api.url)
    link = await nats.connect(own_api.settings, "test")
    writer, silent = Writer(db, tenant, link), Writer(db, tenant)
    loop = asyncio.get_running_loop()
    async with tenant.http() as http:
        task_id = await submit(http)
        async with opened(http, task_id) as frames:
            await anext(frames)
            await writer.steps(task_id, 5)
            assert [(await anext(frames)).id for _ in range(5)] == ["2", "3", "4", "5", "6"]
            server.kill()
            await silent.steps(task_id, 5)
            assert [(await asyncio.wait_for(anext(frames), 5)).id for _ in range(5)] == ["7", "8", "9", "10", "11"]
            assert (await http.get("/readyz")).json()["servers"]["nats"] == "unavailable"
            await submit(http)  # tasks are accepted meanwhile
            await asyncio.to_thread(server.start)
            while (await http.get("/readyz")).json()["servers"]["nats"] != "ok" or not link.connected:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            began = loop.time()
            await writer.steps(task_id, 1)
            assert (await anext(frames)).id == "12"
            assert loop.time() - began < 1.0
            await writer.end(task_id)
            assert await numbers(frames) == [13]
    await link.close()
    server.close()


async def test_a_shutdown_with_twenty_open_streams(own_api: ApiProcess, db: Database) -> None:
    own_api.start()
    tenant = await make_tenant(db, own_api.url)
    async with tenant.http() as http, asyncio.TaskGroup() as group:
        task_id = await submit(http)
        open_ones = asyncio.Semaphore(0)

        async def read() -> list[str | None]:
            async with opened(http, task_id) as frames:
                first = await anext(frames)
                open_ones.release()
                return [first.id, *[f.event async for f in frames]]

        readers = [group.create_task(read()) for _ in range(20)]
        for _ in range(20):
            await open_ones.acquire()
        code, seconds = await asyncio.to_thread(own_api.term)
        assert code == 0
        assert seconds < 6
        # closed without an end: the reader is to come again
        assert [await r for r in readers] == [["1"]] * 20


async def test_a_shutdown_with_a_reader_that_does_not_read(own_api: ApiProcess, db: Database) -> None:
    own_api.start()
    tenant = await make_tenant(db, own_api.url)
    async with tenant.http() as http:
        task_id = await submit(http)
    await Writer(db, tenant).write(task_id, [StepStarted(title="x" * 1_900, round=1)] * 9_000)
    reader, sock = await asyncio.open_connection("127.0.0.1", own_api.settings.api_port, limit=1_000)
    path = f"/v1/tasks/{task_id}/events/stream"
    sock.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.key}\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    await asyncio.sleep(1)
    memory = psutil.Process(own_api.pid).memory_info().rss
    assert memory < 400 << 20
    code, seconds = await asyncio.to_thread(own_api.term)
    assert (code, seconds < 6) == (0, True)
    sock.close()
