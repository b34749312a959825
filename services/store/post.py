"""Who an agent can write to, and what it has asked: `workflows.ports.Post` on PostgreSQL."""

from dataclasses import replace

from sqlalchemy import ColumnElement, or_, select

from agents.contracts.run import AgentRef
from services.store.database import Database
from services.store.directory import read_directory
from services.store.ledger_step import retryable
from services.store.spill import line
from services.store.tables import messages
from workflows.records import Addressee, Outgoing

answers = messages.alias("answers")


def unanswered() -> ColumnElement[bool]:
    """Of a question: nobody has answered it, nor said that nobody will."""
    done = select(answers.c.id).where(
        answers.c.tenant_id == messages.c.tenant_id,
        answers.c.task_id == messages.c.task_id,
        answers.c.reply_to == messages.c.id,
        answers.c.kind.in_(("answer", "notice")),
    )
    return (messages.c.kind == "question") & ~done.exists()


class SqlPost:
    """Implements `workflows.ports.Post`."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def find(self, sender: AgentRef, to: str) -> Addressee:
        """From the directory of the sender's task."""
        async with retryable(self._db) as conn:
            directory = await read_directory(conn, sender.tenant_id, sender.place.task_id)
            found = directory.find(to, sender.place)
            if found.agent_id is None:
                return found
            asked = (
                select(messages.c.id)
                .where(
                    messages.c.tenant_id == sender.tenant_id,
                    messages.c.task_id == sender.place.task_id,
                    messages.c.sender_id == found.agent_id,
                    messages.c.agent_id == sender.place.agent_id,
                    unanswered(),
                )
                .order_by(messages.c.n)
                .limit(1)
            )
            return replace(found, open_question=(await conn.execute(asked)).scalar_one_or_none())

    async def asked(self, sender: AgentRef, message_id: str, to: str, question: str) -> Outgoing | None:
        """One that was stored before."""
        same = (messages.c.text == line(question)) & (messages.c.recipient == to) & unanswered()
        query = (
            select(messages)
            .where(
                messages.c.tenant_id == sender.tenant_id,
                messages.c.task_id == sender.place.task_id,
                messages.c.sender_id == sender.place.agent_id,
                or_(messages.c.id == message_id, same),
            )
            .order_by(messages.c.id != message_id)
            .limit(1)
        )
        async with retryable(self._db) as conn:
            row = (await conn.execute(query)).one_or_none()
        return Outgoing(row.id, row.recipient, row.agent_id, row.kind, row.text, row.reply_to) if row else None
