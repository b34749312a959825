import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest

from agents.contracts.model import Delta
from services.mailbox import subjects
from services.mailbox.link import Link, connect
from services.mailbox.live import NatsLive
from services.settings import Settings
from tests.service.rooms import NatsServer
from workflows.ports import Live


@pytest.fixture
def server() -> Iterator[NatsServer]:
    nats = NatsServer()
    nats.start()
    yield nats
    nats.close()


@pytest.fixture
async def link(server: NatsServer) -> AsyncIterator[Link]:
    link = await connect(Settings(nats_url=server.url), "test")
    yield link
    await link.close()


def a_delta(task_id: str = "task_1") -> Delta:
    return Delta(task_id=task_id, agent_id="agent_1", key="k/m1", fence=3, text="He", at=datetime.now(UTC))


async def test_a_delta_reaches_who_watches(link: Link) -> None:
    came: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    await link.subscribe(subjects.ALL_LIVE, lambda subject, body: came.put_nowait((subject, body)))
    live: Live = NatsLive(link)
    delta = a_delta()
    await live.delta("default", delta)
    subject, body = await asyncio.wait_for(came.get(), 3)
    assert subject == "lh.v1.live.default.task_1.agent_1.tok"
    assert subjects.task_of(subject) == ("default", "task_1")
    assert Delta.model_validate_json(body) == delta


async def test_a_poke_wakes_the_relay(link: Link) -> None:
    woken = asyncio.Event()
    await link.subscribe(subjects.WAKE_OUTBOX, lambda _subject, _body: woken.set())
    await NatsLive(link).poke()
    await asyncio.wait_for(woken.wait(), 3)


async def test_a_control_wakes_who_listens_for_this_task_until_it_stops(link: Link) -> None:
    live = NatsLive(link)
    woken: asyncio.Queue[str] = asyncio.Queue()
    stop_one = await live.on_control("default", "task_1", lambda: woken.put_nowait("one"))
    stop_two = await live.on_control("default", "task_1", lambda: woken.put_nowait("two"))
    await live.on_control("default", "task_2", lambda: woken.put_nowait("other task"))
    await live.on_control("bob", "task_1", lambda: woken.put_nowait("other tenant"))
    await live.control("default", "task_1")
    assert {await asyncio.wait_for(woken.get(), 3) for _ in range(2)} == {"one", "two"}
    await stop_one()
    await stop_one()
    await live.control("default", "task_1")
    assert await asyncio.wait_for(woken.get(), 3) == "two"
    await stop_two()
    await live.control("default", "task_1")
    await live.control("default", "task_2")
    assert await asyncio.wait_for(woken.get(), 3) == "other task"
    assert woken.empty()


async def test_nothing_raises_whatever_is_wrong(server: NatsServer, link: Link) -> None:
    live = NatsLive(link)
    await live.delta("default", a_delta("task.*"))
    await live.control("a b", "task_1")
    server.kill()
    for _ in range(2):
        await live.delta("default", a_delta())
        await live.poke()
        await live.control("default", "task_1")
        await (await live.on_control("default", "task_1", lambda: None))()
        await asyncio.sleep(0.1)
    await link.close()
    await live.delta("default", a_delta())


@pytest.mark.parametrize("text", ["a.b", "a b", "*", ">", "", "a\n", "é", "x" * 81, "a\x00"])
def test_no_text_can_widen_a_subject(text: str) -> None:
    places = [("t", text, "a"), ("t", "task_1", text), (text, "task_1", "a")]
    for place in places:
        with pytest.raises(ValueError, match="cannot stand"):
            subjects.tokens_of(*place)
    for build in (subjects.event, subjects.control):
        for tenant, task in ((text, "task_1"), ("t", text)):
            with pytest.raises(ValueError, match="cannot stand"):
                build(tenant, task)
