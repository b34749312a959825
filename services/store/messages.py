"""Messages as people send and see them."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, ScalarSelect, Select, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.base import excerpt
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.event import MessageSent
from agents.contracts.message import PERSON, MailKind, MessageBody, MessageView
from agents.contracts.task import TaskStatus
from services.store import events, task_views
from services.store.directory import read_directory
from services.store.post import answers
from services.store.spill import line
from services.store.tables import agents, messages, tasks
from workflows.records import Addressee

_ENDING = (TaskStatus.CANCELLING, TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED)


async def send(conn: AsyncConnection, tenant_id: str, task_id: str, message_id: str, body: MessageBody) -> MessageView:
    """Store a person's message: an answer where it replies to a question, else steering. The caller's commit makes it
    count: no round of its recipient ends without it.

    Raises:
        LonghaulError: ``NOT_FOUND`` (the task, or the question), ``UNKNOWN_RECIPIENT``, ``ALREADY_FINISHED``,
            ``ALREADY_ANSWERED``.
    """
    await _require_open(conn, tenant_id, task_id)
    to = await _addressee(conn, tenant_id, task_id, body)
    mine = (agents.c.tenant_id == tenant_id, agents.c.id == to.agent_id)
    await conn.execute(select(agents.c.id).where(*mine).with_for_update(key_share=True))  # agents before the task
    now = await _require_open(conn, tenant_id, task_id, lock=True)
    if body.reply_to is not None:
        await _require_unanswered(conn, tenant_id, task_id, body.reply_to)
    kind: MailKind = "answer" if body.reply_to is not None else "steer"
    row = {
        "id": message_id,
        "tenant_id": tenant_id,
        "task_id": task_id,
        "agent_id": to.agent_id,
        "recipient": to.name,
        "kind": kind,
        "sender": PERSON,
        "text": line(body.text),
        "reply_to": body.reply_to,
        "sent_at": now,
    }
    await conn.execute(insert(messages).values(row))
    text = excerpt(body.text)
    sent = MessageSent(message_id=message_id, sender=PERSON, to=to.name, text=text, kind=kind, reply_to=body.reply_to)
    draft = events.Draft(sent, agent_id=to.agent_id)
    await events.append(conn, tenant_id=tenant_id, task_id=task_id, at=now, drafts=[draft])
    return MessageView.model_validate({**row, "state": "sent", "note": to.note})


async def page(
    conn: AsyncConnection, tenant_id: str, task_id: str, *, limit: int, before: int | None = None
) -> list[tuple[int, MessageView]]:
    """A task's messages with their places, the newest first.

    Raises:
        LonghaulError: ``NOT_FOUND``.
    """
    ended = (
        await conn.execute(select(tasks.c.ended_at).where(tasks.c.tenant_id == tenant_id, tasks.c.id == task_id))
    ).one_or_none()
    if ended is None:
        raise task_views.not_found(task_id)
    came = [_reply("answer").label("answered_by"), _reply("notice").label("closed_by")]
    query: Select[Any] = select(messages, *came).where(messages.c.tenant_id == tenant_id, messages.c.task_id == task_id)
    if before is not None:
        query = query.where(messages.c.n < before)
    rows: Sequence[Row[Any]] = (await conn.execute(query.order_by(messages.c.n.desc()).limit(limit))).all()
    return [(row.n, _view(row, ended=ended.ended_at is not None)) for row in rows]


def _reply(kind: MailKind) -> ScalarSelect[Any]:
    """Of a question: the id of what came of it."""
    mine = (answers.c.tenant_id == messages.c.tenant_id, answers.c.task_id == messages.c.task_id)
    return (
        select(func.min(answers.c.id))
        .where(*mine, answers.c.reply_to == messages.c.id, answers.c.kind == kind)
        .scalar_subquery()
    )


def _view(row: Row[Any], *, ended: bool) -> MessageView:
    state = "read" if row.read_at else "delivered" if row.delivered_at else "sent"
    if ended and state != "read" and row.agent_id is not None:
        state = "undelivered"
    return MessageView.model_validate({**row._mapping, "state": state})


async def _addressee(conn: AsyncConnection, tenant_id: str, task_id: str, body: MessageBody) -> Addressee:
    directory = await read_directory(conn, tenant_id, task_id)
    if body.reply_to is None:
        return directory.at_work() if body.to is None else directory.find(body.to, None)
    query = select(messages.c.sender, messages.c.sender_id).where(
        messages.c.tenant_id == tenant_id,
        messages.c.task_id == task_id,
        messages.c.id == body.reply_to,
        messages.c.kind == "question",
        messages.c.recipient == PERSON,
    )
    question = (await conn.execute(query)).one_or_none()
    if question is None:
        detail = f"there is no question {body.reply_to} to a person in this task; `reply_to` is the id of one"
        raise LonghaulError(ErrorCode.NOT_FOUND, detail)
    if body.to is not None and body.to not in (question.sender, question.sender_id):
        detail = f"the question came from {question.sender}; leave `to` out"
        raise LonghaulError(ErrorCode.UNKNOWN_RECIPIENT, detail)
    return directory.find(question.sender_id, None)


async def _require_open(conn: AsyncConnection, tenant_id: str, task_id: str, *, lock: bool = False) -> Any:
    """Now. Raises where the task is not there, has ended or is about to."""
    query = select(tasks.c.status, func.now().label("now")).where(tasks.c.tenant_id == tenant_id, tasks.c.id == task_id)
    row = (await conn.execute(query.with_for_update(key_share=True) if lock else query)).one_or_none()
    if row is None:
        raise task_views.not_found(task_id)
    if row.status in _ENDING:
        raise LonghaulError(ErrorCode.ALREADY_FINISHED, f"task {task_id} is {row.status}; nobody would read it")
    return row.now


async def _require_unanswered(conn: AsyncConnection, tenant_id: str, task_id: str, question_id: str) -> None:
    mine = (messages.c.tenant_id == tenant_id, messages.c.task_id == task_id, messages.c.reply_to == question_id)
    query = select(messages.c.id, messages.c.kind).where(*mine).order_by(messages.c.kind)
    if (found := (await conn.execute(query)).first()) is not None:
        late = found.kind == "notice"
        why = "nobody answered this question in time and its asker goes on" if late else "this question has its answer"
        detail = f"{why}, {found.id}; send it without `reply_to` to steer"
        raise LonghaulError(ErrorCode.ALREADY_ANSWERED, detail)
