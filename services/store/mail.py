"""The way of a message into a mailbox: written by its sender's transaction, numbered under its recipient's row lock,
exactly once and per sender in order, whoever carries it and however often."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.message import name_of
from agents.contracts.run import AgentRef
from services.store import mail_sql
from services.store.spill import json_text, line
from services.store.tables import agents
from workflows.records import Outgoing


async def send(conn: AsyncConnection, sender: AgentRef, messages: Sequence[Outgoing], at: datetime) -> list[str]:
    """Write an agent's messages; the ids of those that were not there yet."""
    if not messages:
        return []
    binds = {
        "tenant_id": sender.tenant_id,
        "task_id": sender.place.task_id,
        "sender": name_of(sender.place),
        "sender_id": sender.place.agent_id,
        "now": at,
        "messages": rows(messages),
    }
    return list((await conn.execute(mail_sql.SEND, binds)).scalars())


def rows(messages: Sequence[Outgoing]) -> str:
    """Messages as `SEND` takes them."""
    return json_text([{"i": i, **vars(message), "text": line(message.text)} for i, message in enumerate(messages)])


async def deliver(conn: AsyncConnection, tenant_id: str, agent_id: str, at: datetime) -> list[str]:
    """Number all that waits for an agent into its mailbox; the ids, none where the agent is not born yet: then it gets
    them when it is."""
    mine = (agents.c.tenant_id == tenant_id, agents.c.id == agent_id)
    locked = await conn.execute(select(agents.c.id).where(*mine).with_for_update(key_share=True))
    if locked.first() is None:
        return []
    binds = {"tenant_id": tenant_id, "agent_id": agent_id, "now": at}
    return list((await conn.execute(mail_sql.NUMBER, binds)).scalars())


async def welcome(conn: AsyncConnection, ref: AgentRef, at: datetime) -> None:
    """Give an agent that begins a round what was written to its name meanwhile."""
    agent_id = ref.place.agent_id
    binds = {
        "tenant_id": ref.tenant_id,
        "task_id": ref.place.task_id,
        "agent_id": agent_id,
        "recipient": name_of(ref.place),
    }
    await conn.execute(mail_sql.ADOPT, binds)
    await deliver(conn, ref.tenant_id, agent_id, at)
