"""Messages on their way: from the rows to the stream, and from the stream into mailboxes.

The row is the message; the stream carries it, to the mailroom here and to whoever else listens. `PostBag` publishes in
the order of the rows, at least once; `Mailroom` numbers under the recipient's row lock all that waits for it in the
order of the rows, whichever message told of it. So a relay that dies between any two of these leaves nothing that
another one would do twice or out of order. What the stream loses, or NATS being away holds up, is delivered from its
row after some seconds; what is for an agent that is not born yet, at its birth (`services.store.mail.welcome`).
"""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import APIError
from sqlalchemy import Row, select, text, update

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.message import PERSON
from services.mailbox import subjects
from services.mailbox.link import Link
from services.mailbox.streams import ensure_streams
from services.store.database import Database
from services.store.mail import deliver
from services.store.tables import agents, messages, tasks

log = logging.getLogger(__name__)

BATCH = 200
FETCH_S = 1.0
STRANDED_S = 10.0
_LOCK = 0x6D61696C


class PostBag:
    """Publishes messages that are stored and not yet published. One relay at a time does."""

    def __init__(self, db: Database, link: Link) -> None:
        self._db = db
        self._link = link
        self._streams_made = False

    async def drain(self) -> bool:
        """Publish a batch, in order; whether more may be due at once.

        Raises:
            LonghaulError: ``STORE_UNAVAILABLE``, or ``UNAVAILABLE`` where NATS did not take something; what it took
                before is marked.
        """
        if not self._streams_made:
            await ensure_streams(self._link)
            self._streams_made = True
        due = select(messages).where(messages.c.published_at.is_(None)).order_by(messages.c.n).limit(BATCH)
        sent: list[str] = []
        fault: LonghaulError | None = None
        async with self._db.begin() as conn:
            await conn.execute(text("SET LOCAL idle_in_transaction_session_timeout = '60s'"))
            if not (await conn.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _LOCK})).scalar():
                return False
            rows = (await conn.execute(due)).all()
            for row in rows:
                try:
                    await self._publish(row)
                except LonghaulError as error:
                    fault = error
                    break
                sent.append(row.id)
            if sent:
                now = datetime.now(UTC)
                await conn.execute(update(messages).where(messages.c.id.in_(sent)).values(published_at=now))
        if fault:
            self._streams_made = False  # perhaps that is what is wrong
            raise fault
        return len(rows) == BATCH

    async def _publish(self, row: Row[Any]) -> None:
        subject = subjects.message(row.tenant_id, row.task_id, row.agent_id or PERSON)
        await self._link.publish_durably(subject, message_body(row), row.id)


def message_body(row: Row[Any]) -> bytes:
    """A message as it goes out."""
    names = ("id", "tenant_id", "task_id", "agent_id", "recipient", "kind", "sender", "text", "reply_to")
    body = {name: getattr(row, name) for name in names} | {"version": 1, "sent_at": row.sent_at.isoformat()}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


class Mailroom:
    """Takes messages from the stream to their mailboxes; acknowledges each once it is there. `on_mail` is called when
    something was delivered."""

    def __init__(self, db: Database, link: Link, on_mail: Callable[[], None]) -> None:
        self._db = db
        self._link = link
        self._on_mail = on_mail
        self._bound: tuple[Client, JetStreamContext.PullSubscription] | None = None

    async def take(self) -> bool:
        """Take what the stream has, waiting a moment for it; whether there was something.

        Raises:
            LonghaulError: ``UNAVAILABLE``, ``STORE_UNAVAILABLE``: what was not acknowledged comes again.
        """
        found = await self._fetch()
        for message in found:
            await self._deliver(message)
        return bool(found)

    async def deliver_stranded(self, *, older_than_s: float = STRANDED_S) -> bool:
        """Deliver from the rows what did not come by the stream: NATS is away, or has lost it."""
        query = (
            select(messages.c.tenant_id, messages.c.agent_id)
            .join(agents, (agents.c.id == messages.c.agent_id) & (agents.c.tenant_id == messages.c.tenant_id))
            .join(tasks, tasks.c.id == messages.c.task_id)
            .where(
                messages.c.delivered_at.is_(None),
                messages.c.sent_at < datetime.now(UTC) - timedelta(seconds=older_than_s),
                tasks.c.ended_at.is_(None),
            )
            .distinct()
            .limit(BATCH)
        )
        async with self._db.begin() as conn:
            rows = (await conn.execute(query)).all()
        for row in rows:
            await self._to(row.tenant_id, row.agent_id)
        return False

    async def _fetch(self) -> list[Msg]:
        if not await self._link.wait_connected(FETCH_S):
            return []
        try:
            return await (await self._subscription()).fetch(BATCH, timeout=FETCH_S)
        except TimeoutError:
            return []
        except (NatsError, APIError, OSError) as error:
            self._bound = None
            raise LonghaulError(
                ErrorCode.UNAVAILABLE, f"the mailroom has no stream: {error!r}", retry_after_s=1
            ) from error

    async def _subscription(self) -> JetStreamContext.PullSubscription:
        client = self._link.client
        if self._bound is None or self._bound[0] is not client:
            await ensure_streams(self._link)
            stream = client.jetstream(timeout=5.0)
            bound = await stream.pull_subscribe_bind(consumer=subjects.MAILROOM, stream=subjects.MESSAGE_STREAM)
            self._bound = (client, bound)
        return self._bound[1]

    async def _deliver(self, message: Msg) -> None:
        _, _, _, tenant_id, _, to = message.subject.split(".")
        if to != PERSON:
            await self._to(tenant_id, to)
        await self._acknowledge(message)

    async def _acknowledge(self, message: Msg) -> None:
        try:
            await message.ack()
        except (NatsError, OSError) as error:  # it comes again, and finds nothing to do
            log.info("a message was not acknowledged: %r", error)

    async def _to(self, tenant_id: str, agent_id: str) -> None:
        async with self._db.begin() as conn:
            delivered = await deliver(conn, tenant_id, agent_id, datetime.now(UTC))
        if delivered:
            self._on_mail()
