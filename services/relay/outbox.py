"""The outbox: events that are stored but not yet published go to NATS, in order per task, at least once.

One transaction a batch: take the lock that only one relay has, read, publish with acknowledgement, mark. A relay killed
in between publishes the batch again; the stream drops what it has by `Nats-Msg-Id`, and every reader drops what it has
by the event's number. Rows are found by `published_at IS NULL`, never by a cursor: ids of transactions that commit late
would be skipped.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Row, Select, select, text, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.errors import ErrorCode, LonghaulError
from services.mailbox import subjects
from services.mailbox.link import Link
from services.mailbox.streams import ensure_streams
from services.store.database import Database
from services.store.tables import events

log = logging.getLogger(__name__)

BATCH = 500
"""Rows held at a time: at most 8 MiB of them."""
SIDE_BY_SIDE = 16
_LOCK = 0x6F757462
_BODY_MAX_BYTES = 900_000
_COLUMNS = (
    events.c.id,
    events.c.tenant_id,
    events.c.task_id,
    events.c.seq,
    events.c.at,
    events.c.agent_id,
    events.c.step_id,
    events.c.turn,
    events.c.data,
)


@dataclass
class _Sent:
    ids: list[int] = field(default_factory=list)
    fault: LonghaulError | None = None


class Outbox:
    """Publishes what is due. Several relays may have one; only one publishes at a time."""

    def __init__(self, db: Database, link: Link) -> None:
        self._db = db
        self._link = link
        self._room = asyncio.Semaphore(SIDE_BY_SIDE)
        self._held: set[str] = set()
        self._stream_made = False

    async def drain(self) -> bool:
        """Publish a batch; whether more may be due at once. A relay that stands by does nothing.

        Raises:
            LonghaulError: ``STORE_UNAVAILABLE``, or ``UNAVAILABLE`` where NATS did not take something; what it took
                before is marked.
        """
        if not await self._link.wait_connected(1.0):
            raise _away()
        if not self._stream_made:
            await ensure_streams(self._link)
            self._stream_made = True
        async with self._db.begin() as conn:
            if not await _alone(conn):
                return False
            rows = (await conn.execute(_due(self._held))).all()
            sent = await self._publish(await self._in_order(conn, rows))
            if sent.ids:
                now = datetime.now(UTC)
                await conn.execute(update(events).where(events.c.id.in_(sent.ids)).values(published_at=now))
        if sent.fault:
            self._stream_made = False  # perhaps that is what is wrong
            raise sent.fault
        if len(rows) < BATCH:
            self._held.clear()  # looked at again with the next batch
        return len(rows) == BATCH

    async def _in_order(self, conn: AsyncConnection, rows: Sequence[Row[Any]]) -> list[list[Row[Any]]]:
        """The rows by task and number, each task only as far as nothing before it is unpublished.

        Numbers are taken under the task's row lock, so this cuts nothing off unless somebody wrote around that lock;
        it is here because a reader that sees 7 before 6 has no way to know whether 6 will come.
        """
        ordered = sorted(rows, key=lambda row: (row.task_id, row.seq))
        tasks = [list(group) for _, group in groupby(ordered, key=lambda row: row.task_id)]
        published = await _published(conn, [(task[0].task_id, task[0].seq - 1) for task in tasks])
        ready = [_unbroken(task, published) for task in tasks]
        # left out of the batches that follow, so that they do not fill them up
        self._held |= {task[0].task_id for task, part in zip(tasks, ready, strict=True) if len(part) < len(task)}
        return [part for part in ready if part]

    async def _publish(self, tasks: Sequence[Sequence[Row[Any]]]) -> _Sent:
        sent = _Sent()
        await asyncio.gather(*(self._publish_task(rows, sent) for rows in tasks))
        return sent

    async def _publish_task(self, rows: Sequence[Row[Any]], sent: _Sent) -> None:
        async with self._room:
            for row in rows:
                if sent.fault:  # of any task: NATS is in trouble, and the transaction must not stay open for long
                    return
                try:
                    await self._publish_event(row)
                except LonghaulError as fault:
                    sent.fault = fault
                    return
                sent.ids.append(row.id)

    async def _publish_event(self, row: Row[Any]) -> None:
        body = event_body(row._asdict())
        if len(body) > _BODY_MAX_BYTES:
            # NATS would refuse it for ever; readers see the gap and take it from the table
            log.error("an event is too large for NATS", extra={"task_id": row.task_id, "seq": row.seq})
            return
        subject = subjects.event(row.tenant_id, row.task_id)
        await self._link.publish_durably(subject, body, f"{row.task_id}:{row.seq}")


def event_body(row: Mapping[str, Any]) -> bytes:
    """An event as it goes out: the JSON of `agents.contracts.event.Event`. It is not validated here: a relay carries
    also what a newer process stored."""
    out = {name: row[name] for name in ("task_id", "seq", "agent_id", "step_id", "turn", "data")}
    return json.dumps({**out, "at": row["at"].isoformat()}, ensure_ascii=False, separators=(",", ":")).encode()


def _due(held: set[str]) -> Select[Any]:
    query = select(*_COLUMNS).where(events.c.published_at.is_(None))
    if held:
        query = query.where(events.c.task_id.not_in(held))
    return query.order_by(events.c.id).limit(BATCH)


async def _alone(conn: AsyncConnection) -> bool:
    # ends with the transaction, however this process ends; a cut-off relay must not keep it
    await conn.execute(text("SET LOCAL idle_in_transaction_session_timeout = '60s'"))
    return bool((await conn.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _LOCK})).scalar())


async def _published(conn: AsyncConnection, places: list[tuple[str, int]]) -> set[tuple[str, int]]:
    asked = [place for place in places if place[1] > 0]
    if not asked:
        return set()
    query = select(events.c.task_id, events.c.seq).where(
        tuple_(events.c.task_id, events.c.seq).in_(asked), events.c.published_at.is_not(None)
    )
    return {(row.task_id, row.seq) for row in (await conn.execute(query)).all()}


def _unbroken(task: list[Row[Any]], published: set[tuple[str, int]]) -> list[Row[Any]]:
    first = task[0]
    if first.seq > 1 and (first.task_id, first.seq - 1) not in published:
        log.warning("held back: the event before it is not published", extra={"task_id": first.task_id})
        return []
    return [row for n, row in enumerate(task) if row.seq == first.seq + n]


def _away() -> LonghaulError:
    return LonghaulError(ErrorCode.UNAVAILABLE, "NATS is away; nothing is lost, the events wait", retry_after_s=1)
