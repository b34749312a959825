"""Questions that nobody will answer: their time is over, or who was asked has ended its round without a word."""

import logging
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, or_, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.event import MessageSent
from agents.contracts.ids import short_digest
from agents.contracts.message import HARNESS
from services.store import events
from services.store.database import Database
from services.store.ledger_step import AGENT, MAIL_WAITS
from services.store.mail import deliver
from services.store.post import unanswered
from services.store.tables import agents, messages, tasks

log = logging.getLogger(__name__)

_BATCH = 100
asked = agents.alias("asked")


async def close_questions(db: Database) -> bool:
    """Tell those who wait for an answer that none will come, each once; whether there may be more."""
    now = datetime.now(UTC)
    mine = (messages.c.sender_id == agents.c.id) & (messages.c.tenant_id == agents.c.tenant_id)
    query = (
        select(messages, (messages.c.expires_at <= now).label("expired"))
        .join(agents, mine & (messages.c.task_id == agents.c.task_id))
        .join(tasks, tasks.c.id == messages.c.task_id)
        .outerjoin(asked, (asked.c.id == messages.c.agent_id) & (asked.c.tenant_id == messages.c.tenant_id))
        .where(
            agents.c.state == "waiting",
            agents.c.waiting_for.in_(MAIL_WAITS),
            or_(messages.c.expires_at <= now, (agents.c.waiting_for == AGENT) & (asked.c.state == "finished")),
            tasks.c.ended_at.is_(None),
            unanswered(),
        )
        .limit(_BATCH)
    )
    async with db.begin() as conn:
        rows = (await conn.execute(query)).all()
    for row in rows:
        async with db.begin() as conn:
            await _close(conn, row, now)
    return len(rows) == _BATCH


async def _close(conn: AsyncConnection, question: Row[Any], now: datetime) -> None:
    """Under the asker's lock, which an answer takes too: a question is answered or closed, never both."""
    mine = (agents.c.tenant_id == question.tenant_id, agents.c.id == question.sender_id)
    await conn.execute(select(agents.c.id).where(*mine).with_for_update(key_share=True))
    still = select(messages.c.id).where(messages.c.id == question.id, unanswered())
    if (await conn.execute(still)).first() is None:
        return
    why = (
        "did not answer your question in time"
        if question.expired
        else ("has ended its round without answering your question")
    )
    text = f"{question.recipient} {why}. Decide it yourself."
    row = {
        "id": f"msg_{short_digest(f'{question.id}/unanswered')}",
        "tenant_id": question.tenant_id,
        "task_id": question.task_id,
        "agent_id": question.sender_id,
        "recipient": question.sender,
        "kind": "notice",
        "sender": HARNESS,
        "text": text,
        "reply_to": question.id,
        "sent_at": now,
    }
    new = upsert(messages).values(row).on_conflict_do_nothing().returning(messages.c.id)
    if (await conn.execute(new)).first() is None:
        return
    await deliver(conn, question.tenant_id, question.sender_id, now)
    sent = MessageSent(
        message_id=row["id"], sender=HARNESS, to=question.sender, text=text, kind="notice", reply_to=question.id
    )
    draft = events.Draft(sent, agent_id=question.sender_id)
    await events.append(conn, tenant_id=question.tenant_id, task_id=question.task_id, at=now, drafts=[draft])
    log.info("a question was closed without an answer", extra={"task_id": question.task_id})
