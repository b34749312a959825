import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from services.mailbox import subjects
from services.mailbox.link import Link, connect
from services.mailbox.streams import ensure_streams
from services.settings import Settings
from tests.service.rooms import NatsServer


@pytest.fixture
def server() -> Iterator[NatsServer]:
    nats = NatsServer()
    nats.start()
    yield nats
    nats.close()


@asynccontextmanager
async def linked(server: NatsServer, **more: str) -> AsyncIterator[Link]:
    link = await connect(Settings(nats_url=server.url, **more), "test")  # type: ignore[arg-type]
    try:
        yield link
    finally:
        await link.close()


class Inbox:
    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._more = asyncio.Event()

    def take(self, subject: str, body: bytes) -> None:
        self.bodies.append(body)
        self._more.set()

    async def has(self, *bodies: bytes, timeout_s: float = 3.0) -> None:
        async with asyncio.timeout(timeout_s):
            while self.bodies != list(bodies):
                self._more.clear()
                await self._more.wait()


async def test_a_server_that_comes_later_is_found(server: NatsServer) -> None:
    server.kill()
    began = time.monotonic()
    link = await connect(Settings(nats_url=server.url), "test", wait_s=0.2)
    assert time.monotonic() - began < 1
    assert not link.connected
    inbox = Inbox()
    await link.subscribe("a.>", inbox.take)
    server.start()
    assert await link.wait_connected(5)
    assert await link.publish("a.b", b"1")
    await inbox.has(b"1")
    await link.close()


async def test_subscriptions_outlive_a_killed_server_and_a_closed_client(server: NatsServer) -> None:
    async with linked(server) as link:
        first, second = Inbox(), Inbox()
        await link.subscribe("a.>", first.take)
        server.kill()
        await _until(lambda: not link.connected)
        await link.subscribe("b.>", second.take)  # asked for while it is away
        server.start()
        assert await link.wait_connected(5)
        await link.publish("a.1", b"1")
        await link.publish("b.1", b"1")
        await first.has(b"1")
        await second.has(b"1")

        await link.client.close()  # what the library does by itself on some refusals
        await _until(lambda: not link.connected)
        assert await link.wait_connected(5)
        await link.publish("a.2", b"2")
        await link.publish("b.2", b"2")
        await first.has(b"1", b"2")
        await second.has(b"1", b"2")


async def test_what_is_sent_while_it_is_away_is_left_out_and_does_not_come_late(server: NatsServer) -> None:
    async with linked(server) as link:
        inbox = Inbox()
        await link.subscribe("a.>", inbox.take)
        server.kill()
        await _until(lambda: not link.connected)
        assert not await link.publish("a.1", b"old")
        server.start()
        assert await link.wait_connected(5)
        assert await link.publish("a.1", b"new")
        await inbox.has(b"new")


async def test_a_durable_message_is_kept_once(server: NatsServer) -> None:
    async with linked(server) as link:
        with pytest.raises(LonghaulError) as none_yet:
            await link.publish_durably("lh.v1.ev.t.task_1", b"1", "task_1:1")
        assert none_yet.value.code is ErrorCode.UNAVAILABLE
        await asyncio.gather(ensure_streams(link), ensure_streams(link))
        for _ in range(3):
            await link.publish_durably("lh.v1.ev.t.task_1", b"1", "task_1:1")
        server.kill()
        await _until(lambda: not link.connected)
        with pytest.raises(LonghaulError, match="UNAVAILABLE"):
            await link.publish_durably("lh.v1.ev.t.task_1", b"2", "task_1:2")
        server.start()
        assert await link.wait_connected(5)
        await link.publish_durably("lh.v1.ev.t.task_1", b"1", "task_1:1")  # remembered over the restart
        await link.publish_durably("lh.v1.ev.t.task_1", b"2", "task_1:2")
        info = await link.client.jetstream().stream_info(subjects.EVENT_STREAM)
        assert info.state.messages == 2


async def test_a_server_that_accepts_and_says_nothing_is_not_waited_for(server: NatsServer) -> None:
    """The link is half open: TCP is up, nothing answers."""
    async with linked(server) as link:
        await ensure_streams(link)
        server.freeze()
        began = time.monotonic()
        with pytest.raises(LonghaulError, match="UNAVAILABLE"):
            await link.publish_durably("lh.v1.ev.t.task_1", b"1", "task_1:1", timeout_s=0.5)
        assert time.monotonic() - began < 2
    assert time.monotonic() - began < 6, "closing is bounded too"


async def test_an_outage_is_a_line_and_not_one_a_retry(server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with linked(server) as link:
        server.kill()
        await asyncio.sleep(3.5)
        server.start()
        assert await link.wait_connected(5)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith(("services", "nats"))]
    assert sum("NATS is away" in line for line in lines) == 1
    assert sum("NATS is back" in line for line in lines) == 1
    assert len(lines) <= 5, lines


async def test_a_refused_subject_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    users = 'authorization { users: [{ user: w, password: secret, permissions: { publish: ["ok.>"] } }] }'
    nats = NatsServer(users)
    nats.start()
    try:
        async with linked(nats, nats_user="w", nats_password="secret") as link:
            assert await link.publish("forbidden.x", b"")
            await _until(lambda: "ermissions" in caplog.text)
            assert link.connected, "it is no reason to give the connection up"
        link = await connect(Settings(nats_url=nats.url, nats_user="w", nats_password="wrong"), "test", wait_s=0.3)  # type: ignore[arg-type]
        assert not link.connected
        assert "uthorization" in caplog.text
        await link.close()
    finally:
        nats.close()


async def test_a_reader_that_fails_does_not_end_the_subscription(server: NatsServer) -> None:
    inbox = Inbox()

    def take(subject: str, body: bytes) -> None:
        inbox.take(subject, body)
        raise ValueError("a bug")

    async with linked(server) as link:
        await link.subscribe("a", take)
        for body in (b"1", b"2"):
            await link.publish("a", body)
        await inbox.has(b"1", b"2")


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110 - the library's state has no event
            await asyncio.sleep(0.02)
