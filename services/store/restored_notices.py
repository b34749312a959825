"""What agents are told of a sandbox that was lost and made again: a notice in the mailbox, each once."""

from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.base import excerpt
from agents.contracts.event import MessageSent
from agents.contracts.ids import Place, Role, short_digest
from agents.contracts.message import HARNESS, name_of
from agents.contracts.run import TaskRef
from services.store.events import Draft
from services.store.mail import deliver
from services.store.tables import agents, messages, steps, tasks, tool_calls, turns
from workflows.task_ports import Box
from workflows.wording import restored


async def write(
    conn: AsyncConnection, task: TaskRef, ids: list[str], box: Box, snapshot: Row[Any] | None, at: datetime
) -> list[Draft]:
    """Write to those of these agents that work in it, or may be called upon again. Their rows are locked."""
    drafts = []
    for agent in await _concerned(conn, task, ids):
        behind = await _behind(conn, task, agent.id, snapshot.taken_at if snapshot else None)
        text = restored(box.purpose, snapshot.step_id if snapshot else None, snapshot.turn if snapshot else 0, behind)
        drafts += await _send(conn, task, agent, f"{box.id}/{agent.id}/restored", text, at)
    return drafts


async def _concerned(conn: AsyncConnection, task: TaskRef, ids: list[str]) -> list[Row[Any]]:
    open_steps = (
        select(steps.c.step_id)
        .join(tasks, (tasks.c.id == steps.c.task_id) & (tasks.c.plan_revision == steps.c.revision))
        .where(
            steps.c.tenant_id == task.tenant_id,
            steps.c.task_id == task.task_id,
            steps.c.epoch == task.epoch,
            steps.c.state.in_(("running", "reviewing")),
        )
    )
    under_way = (agents.c.role == Role.EXECUTOR.value) & agents.c.step.in_(open_steps)
    query = select(agents).where(
        agents.c.tenant_id == task.tenant_id, agents.c.id.in_(ids), or_(agents.c.state != "finished", under_way)
    )
    return list((await conn.execute(query.order_by(agents.c.id))).all())


async def _behind(conn: AsyncConnection, task: TaskRef, agent_id: str, since: datetime | None) -> int:
    """In how many of its turns the agent called tools after the moment whose files there are now."""
    calls = (
        select(tool_calls.c.round, tool_calls.c.turn)
        .join(
            turns,
            (turns.c.agent_id == tool_calls.c.agent_id)
            & (turns.c.round == tool_calls.c.round)
            & (turns.c.turn == tool_calls.c.turn),
        )
        .where(tool_calls.c.tenant_id == task.tenant_id, tool_calls.c.agent_id == agent_id)
        .distinct()
    )
    if since is not None:
        calls = calls.where(or_(turns.c.ended_at.is_(None), turns.c.ended_at > since))
    count: int = (await conn.execute(select(func.count()).select_from(calls.subquery()))).scalar_one()
    return count


async def _send(
    conn: AsyncConnection, task: TaskRef, agent: Row[Any], key: str, text: str, at: datetime
) -> list[Draft]:
    place = Place(
        task_id=task.task_id, epoch=task.epoch, role=Role(agent.role), revision=agent.revision, step=agent.step
    )
    row = {
        "id": f"msg_{short_digest(key)}",
        "tenant_id": task.tenant_id,
        "task_id": task.task_id,
        "agent_id": agent.id,
        "recipient": name_of(place),
        "kind": "notice",
        "sender": HARNESS,
        "text": text,
        "sent_at": at,
    }
    new = insert(messages).values(row).on_conflict_do_nothing().returning(messages.c.id)
    if (await conn.execute(new)).first() is None:
        return []
    await deliver(conn, task.tenant_id, agent.id, at)
    sent = MessageSent(message_id=row["id"], sender=HARNESS, to=row["recipient"], text=excerpt(text), kind="notice")
    return [Draft(sent, agent_id=agent.id, step_id=agent.step)]
