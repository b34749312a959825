"""Questions that nobody will answer: the one who was asked has ended its round without a word."""

import logging
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.event import MessageSent
from agents.contracts.ids import short_digest
from agents.contracts.message import HARNESS
from services.store import events
from services.store.database import Database
from services.store.ledger_step import AGENT
from services.store.mail import deliver
from services.store.post import unanswered
from services.store.tables import agents, messages, tasks

log = logging.getLogger(__name__)

_BATCH = 100
asked = agents.alias("asked")


async def close_questions(db: Database) -> bool:
    """Tell those who wait for an agent's answer that none will come, each once; whether there may be more."""
    query = (
        select(messages)
        .join(agents, (agents.c.id == messages.c.sender_id) & (agents.c.tenant_id == messages.c.tenant_id))
        .join(asked, (asked.c.id == messages.c.agent_id) & (asked.c.tenant_id == messages.c.tenant_id))
        .join(tasks, tasks.c.id == messages.c.task_id)
        .where(
            agents.c.state == "waiting",
            agents.c.waiting_for == AGENT,
            asked.c.state == "finished",
            tasks.c.ended_at.is_(None),
            unanswered(),
        )
        .limit(_BATCH)
    )
    async with db.begin() as conn:
        rows = (await conn.execute(query)).all()
    for row in rows:
        async with db.begin() as conn:
            await _close(conn, row)
    return len(rows) == _BATCH


async def _close(conn: AsyncConnection, question: Row[Any]) -> None:
    now = datetime.now(UTC)
    mine = (agents.c.tenant_id == question.tenant_id, agents.c.id == question.sender_id)
    await conn.execute(select(agents.c.id).where(*mine).with_for_update(key_share=True))
    text = f"{question.recipient} has ended its round without answering your question. Decide it yourself."
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
