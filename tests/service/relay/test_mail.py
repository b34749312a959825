"""Mail from the rows to the mailboxes: once, per sender in order, whoever dies on the way."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from sqlalchemy import func, insert, select, update

from agents.contracts.errors import LonghaulError
from agents.contracts.ids import Place, Role
from agents.contracts.run import AgentRef
from services.ids import new_id
from services.mailbox import subjects
from services.mailbox.link import Link, connect
from services.relay.mail import Mailroom, PostBag
from services.relay.questions import close_questions
from services.settings import Settings
from services.store import mail
from services.store.database import Database
from services.store.tables import agents, events, messages
from tests.service.rooms import NatsServer, Process, add_task, database, fresh_database
from workflows.records import Outgoing


class Room(NamedTuple):
    settings: Settings
    db: Database
    link: Link
    nats: NatsServer
    task_id: str

    def ref(self, step: str) -> AgentRef:
        place = Place(task_id=self.task_id, role=Role.EXECUTOR, step=step)
        return AgentRef(tenant_id="default", place=place, round=1)

    async def born(self, step: str, state: str = "running", waiting_for: str | None = None) -> AgentRef:
        """An agent without a brief."""
        ref, now = self.ref(step), datetime.now(UTC)
        row = {
            "id": ref.place.agent_id,
            "tenant_id": "default",
            "task_id": self.task_id,
            "epoch": 0,
            "role": "executor",
            "revision": 1,
            "step": step,
            "round": 1,
            "state": state,
            "waiting_for": waiting_for,
            "activity": "",
            "activity_at": now,
            "created_at": now,
        }
        async with self.db.begin() as conn:
            await conn.execute(insert(agents).values(row))
        return ref

    async def write(
        self, sender: AgentRef, to: AgentRef | None, text: str, kind: Any = "mail", expires_s: float | None = None
    ) -> str:
        """One message, in a transaction of its own; to a person where it is to no agent."""
        name, agent_id = (to.place.step, to.place.agent_id) if to else ("person", None)
        message = Outgoing(new_id("msg"), name, agent_id, kind, text, expires_s=expires_s)
        async with self.db.begin() as conn:
            await mail.send(conn, sender, [message], datetime.now(UTC))
        return message.id

    async def box(self, of: AgentRef) -> list[tuple[int, str, str]]:
        """Number, sender and text of what is in a mailbox."""
        query = (
            select(messages.c.seq, messages.c.sender, messages.c.text)
            .where(messages.c.agent_id == of.place.agent_id, messages.c.delivered_at.is_not(None))
            .order_by(messages.c.seq)
        )
        async with self.db.begin() as conn:
            return [(row.seq, row.sender, row.text) for row in (await conn.execute(query)).all()]

    async def unacknowledged(self) -> int:
        """How many messages the stream will give out (again)."""
        info = await self.link.client.jetstream().consumer_info(subjects.MESSAGE_STREAM, subjects.MAILROOM)
        return int(info.num_ack_pending or 0) + int(info.num_pending or 0)

    async def left(self) -> int:
        """How many are not where they belong."""
        query = select(func.count()).where(messages.c.delivered_at.is_(None) | messages.c.published_at.is_(None))
        async with self.db.begin() as conn:
            return int((await conn.execute(query)).scalar_one())


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
        async with db.begin() as conn:
            task_id = await add_task(conn)
        yield Room(own, db, link, nats, task_id)
        await link.close()


async def many(room: Room, senders: int, each: int) -> list[AgentRef]:
    """`senders` agents write `each` messages to each of two others, all at once; returns those two."""
    readers = [await room.born(name) for name in ("r1", "r2")]
    writers = [await room.born(f"w{n}") for n in range(senders)]
    await wave(room, writers, readers, range(each))
    return readers


async def wave(room: Room, writers: list[AgentRef], readers: list[AgentRef], numbers: range) -> None:
    """Each of the writers writes these numbers to each of the readers, all at once."""

    async def one(writer: AgentRef) -> None:
        for n in numbers:
            for reader in readers:
                await room.write(writer, reader, str(n))
            await asyncio.sleep(random.uniform(0, 0.01))

    await asyncio.gather(*(one(writer) for writer in writers))


async def assert_exact(room: Room, readers: list[AgentRef], senders: int, each: int) -> None:
    """Every message once, numbered without gaps, per sender in order."""
    for reader in readers:
        found = await room.box(reader)
        assert [seq for seq, _, _ in found] == list(range(1, senders * each + 1))
        for n in range(senders):
            assert [text for _, who, text in found if who == f"w{n}"] == [str(i) for i in range(each)]
        async with room.db.begin() as conn:
            sent = select(agents.c.mail_sent).where(agents.c.id == reader.place.agent_id)
            assert (await conn.execute(sent)).scalar_one() == senders * each


async def drained(room: Room) -> None:
    """Carry until nothing is left."""
    bag, mailroom = PostBag(room.db, room.link), Mailroom(room.db, room.link, lambda: None)
    async with asyncio.timeout(40):
        while await room.left():
            await bag.drain()
            await mailroom.take()


@pytest.mark.parametrize("hop", ["publish", "deliver"])
async def test_killed_at_each_hop_every_message_arrives_once_and_in_order(room: Room, hop: str) -> None:
    """200 messages in four waves; in three of them a relay dies, and what it did not acknowledge comes again."""
    readers, writers = [await room.born(f"r{n}") for n in (1, 2)], [await room.born(f"w{n}") for n in range(5)]
    for first, after in ((0, 1), (5, 23), (10, 40)):
        await wave(room, writers, readers, range(first, first + 5))
        with Process("tests/service/relay/dying_mail.py", hop, str(after), settings=room.settings) as dying:
            assert await dying.wait() == -signal.SIGKILL, dying.log()
    await wave(room, writers, readers, range(15, 20))
    await drained(room)
    await assert_exact(room, readers, 5, 20)
    mailroom = Mailroom(room.db, room.link, lambda: pytest.fail("delivered twice"))
    async with asyncio.timeout(30):
        while (await room.unacknowledged()) > 0:
            await mailroom.take()
    await assert_exact(room, readers, 5, 20)


async def test_a_whole_relay_killed_again_and_again_under_load(room: Room) -> None:
    writing = asyncio.create_task(many(room, 5, 20))
    for _ in range(3):
        with Process("-m", "services.relay.main", settings=room.settings) as relay:
            await relay.says("the relay is up")
            await asyncio.sleep(random.uniform(0.0, 0.4))
    readers = await writing
    with Process("-m", "services.relay.main", settings=room.settings):
        async with asyncio.timeout(40):
            while await room.left():  # noqa: ASYNC110 - rows have no event
                await asyncio.sleep(0.1)
    await assert_exact(room, readers, 5, 20)


async def test_nats_killed_under_load_and_two_relays_at_once(room: Room) -> None:
    stop = asyncio.Event()
    other = await connect(room.settings, "other")

    async def carry(link: Link) -> None:
        bag, mailroom = PostBag(room.db, link), Mailroom(room.db, link, lambda: None)
        while not stop.is_set():
            for work in (bag.drain, mailroom.take):
                try:
                    await work()
                except LonghaulError:  # NATS is away
                    await asyncio.sleep(0.1)

    relays = [asyncio.create_task(carry(link)) for link in (room.link, other)]
    writing = asyncio.create_task(many(room, 5, 20))
    for _ in range(2):
        await asyncio.sleep(0.4)
        room.nats.kill()
        await asyncio.sleep(0.4)
        room.nats.start()
    readers = await writing
    async with asyncio.timeout(40):
        while await room.left():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    stop.set()
    await asyncio.gather(*relays)
    await other.close()
    await assert_exact(room, readers, 5, 20)


async def test_what_the_stream_has_lost_is_delivered_from_its_row(room: Room) -> None:
    readers = await many(room, 1, 3)
    async with room.db.begin() as conn:
        await conn.execute(update(messages).values(published_at=func.now()))
    mailroom = Mailroom(room.db, room.link, lambda: None)
    await mailroom.take()
    await mailroom.deliver_stranded()
    assert await room.box(readers[0]) == [], "it may still come"
    await mailroom.deliver_stranded(older_than_s=0)
    await assert_exact(room, readers, 1, 3)


async def test_one_that_is_not_born_gets_all_of_it_at_birth(room: Room) -> None:
    writer, coming = await room.born("w0"), room.ref("later")
    for n in range(3):
        await room.write(writer, coming, str(n))
    bag, mailroom = PostBag(room.db, room.link), Mailroom(room.db, room.link, lambda: None)
    await bag.drain()
    await mailroom.take()
    assert await mailroom.take() is False, "acknowledged: nothing comes again"
    await mailroom.deliver_stranded(older_than_s=0)
    assert await room.left() == 3
    await room.born("later")
    async with room.db.begin() as conn:
        await mail.welcome(conn, coming, datetime.now(UTC))
    assert await room.box(coming) == [(1, "w0", "0"), (2, "w0", "1"), (3, "w0", "2")]


async def test_a_question_whose_time_is_over_is_closed_once(room: Room) -> None:
    asker, busy = await room.born("asker", state="waiting", waiting_for="person"), await room.born("busy")
    patient = await room.born("patient", state="waiting", waiting_for="person")
    await room.write(patient, None, "and I?", kind="question", expires_s=3_600)
    late = await room.write(asker, None, "which colour?", kind="question", expires_s=0)
    answered = await room.write(asker, busy, "your port?", kind="question", expires_s=0)
    async with room.db.begin() as conn:
        reply = Outgoing(new_id("msg"), "asker", asker.place.agent_id, "answer", "8080", answered)
        await mail.send(conn, busy, [reply], datetime.now(UTC))
    for _ in range(2):
        await close_questions(room.db)
    assert await room.box(patient) == []
    assert await room.box(asker) == [
        (1, "busy", "8080"),
        (2, "harness", "person did not answer your question in time. Decide it yourself."),
    ]
    async with room.db.begin() as conn:
        rows = (await conn.execute(select(messages.c.reply_to).where(messages.c.kind == "notice"))).scalars().all()
    assert rows == [late]


async def test_a_question_to_one_who_has_ended_is_closed_once(room: Room) -> None:
    asker = await room.born("asker", state="waiting", waiting_for="agent")
    gone, busy = await room.born("gone", state="finished"), await room.born("busy")
    await room.write(asker, busy, "and you?", kind="question")
    question = await room.write(asker, gone, "your port?", kind="question")
    for _ in range(2):
        await close_questions(room.db)
    [notice] = await room.box(asker)
    assert notice == (1, "harness", "gone has ended its round without answering your question. Decide it yourself.")
    async with room.db.begin() as conn:
        rows = (await conn.execute(select(messages).where(messages.c.kind == "notice"))).all()
        told = (await conn.execute(select(events.c.data).where(events.c.type == "message.sent"))).scalars().all()
    assert [row.reply_to for row in rows] == [question]
    assert [(data["kind"], data["to"]) for data in told] == [("notice", "asker")]
