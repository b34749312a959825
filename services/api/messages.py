"""``/v1/tasks/{id}/messages``: what agents and people write to each other."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from agents.contracts.base import Edge
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.message import MessageBody, MessageView
from agents.contracts.page import MessagePage
from services.api.auth import Reader, Submitter
from services.api.bodies import read_json
from services.api.docs import MESSAGE_EXAMPLES, body_of
from services.api.ids import TaskId
from services.api.once import Key, once_of
from services.api.parts import Using
from services.ids import new_id
from services.store import idempotency, messages, task_views

router = APIRouter(prefix="/v1/tasks/{task_id}/messages", tags=["messages"])


class MessagesQuery(Edge):
    """What ``GET`` understands."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str, Field(max_length=40)] | None = None


@router.post("", status_code=201, summary="Steer, or answer", openapi_extra=body_of(MessageBody, MESSAGE_EXAMPLES))
async def send(request: Request, caller: Submitter, parts: Using, task_id: TaskId, key: Key = None) -> MessageView:
    """Write to an agent of the task. The answer comes once the message is stored: from then on its recipient reads it
    before it can end, and `note` says when that will be. 404 `UNKNOWN_RECIPIENT` says who there is, 409
    `ALREADY_FINISHED` that the task has ended, 409 `ALREADY_ANSWERED` that somebody was faster."""
    async with parts.db.begin() as conn:
        await task_views.require(conn, caller.tenant_id, task_id)  # what is not there is told before the body is judged
    body = await read_json(request, MessageBody)
    once = once_of(caller.tenant_id, key, body, path=request.url.path)
    async with parts.db.begin() as conn:
        if once is not None:
            await idempotency.claim(conn, once)
            if (answer := await idempotency.answered(conn, once, MessageView)) is not None:
                return answer
        view = await messages.send(conn, caller.tenant_id, task_id, new_id("msg"), body)
        if once is not None:
            await idempotency.keep(conn, once, view, f"/v1/tasks/{task_id}/messages", status=201)
    await parts.live.poke()
    return view


@router.get("", summary="A page of messages")
async def page(caller: Reader, parts: Using, task_id: TaskId, query: Annotated[MessagesQuery, Query()]) -> MessagePage:
    """A task's messages, the newest first, each with how far it has come."""
    before = _place(query.cursor) if query.cursor is not None else None
    async with parts.db.begin() as conn:
        found = await messages.page(conn, caller.tenant_id, task_id, limit=query.limit + 1, before=before)
    data = found[: query.limit]
    more = len(found) > query.limit
    return MessagePage(data=[view for _, view in data], next_cursor=f"m{data[-1][0]}" if more else None)


def _place(cursor: str) -> int:
    number = cursor.removeprefix("m")
    if number == cursor or not (number.isascii() and number.isdecimal() and len(number) <= 18):
        raise LonghaulError(ErrorCode.INVALID_CURSOR, "this cursor is not one of messages; start without a cursor")
    return int(number)
