"""``/v1/tasks/{id}/events``: pages, and the live stream."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from pydantic import Field
from sqlalchemy import select

from agents.contracts.base import Edge
from agents.contracts.ids import Id
from agents.contracts.page import EventPage
from services.api import sse
from services.api.auth import Reader, secret_of
from services.api.ids import TaskId
from services.api.parts import Using
from services.api.problems import invalid
from services.store import events, task_views
from services.store.tables import tasks

router = APIRouter(prefix="/v1/tasks/{task_id}/events", tags=["events"])

_MAX_SEQ = 2**62
Seq = Annotated[int, Field(ge=0, le=_MAX_SEQ)]
Kind = Annotated[str, Field(pattern=r"^[a-z]{1,20}(\.[a-z_]{1,20})?$")]


class EventsQuery(Edge):
    """What a page of events is asked for. `kind` is a type (``tool.called``) or a subject (``tool``)."""

    after: Seq = 0
    before: Annotated[int, Field(ge=1, le=_MAX_SEQ)] | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 200
    kind: Annotated[list[Kind], Field(max_length=50, default_factory=list)]
    agent: Id | None = None
    order: Literal["asc", "desc"] = "asc"


class StreamQuery(Edge):
    """Where a stream begins: behind this number."""

    after: Seq = 0


@router.get("", summary="A page of events")
async def page(caller: Reader, parts: Using, task_id: TaskId, query: Annotated[EventsQuery, Query()]) -> EventPage:
    """Events by their numbers: from `after` onwards, or with `order=desc` the newest before `before`."""
    newest = query.order == "desc"
    async with parts.db.begin() as conn:
        mine = (tasks.c.tenant_id == caller.tenant_id, tasks.c.id == task_id)
        last_seq = (await conn.execute(select(tasks.c.last_seq).where(*mine))).scalar_one_or_none()
        if last_seq is None:
            raise task_views.not_found(task_id)
        found = await events.read(
            conn,
            tenant_id=caller.tenant_id,
            task_id=task_id,
            after=query.after,
            before=query.before,
            limit=query.limit + 1,
            newest=newest,
            kinds=query.kind,
            agent_id=query.agent,
        )
    if newest:
        found.reverse()
    data = found[: query.limit]
    more = data[-1].seq if len(found) > query.limit else None
    return EventPage(
        data=data, last_seq=last_seq, next_after=None if newest else more, next_before=more if newest else None
    )


@router.get("/stream", summary="The live stream", response_class=sse.EventStream)
async def stream(
    request: Request,
    caller: Reader,
    parts: Using,
    task_id: TaskId,
    query: Annotated[StreamQuery, Query()],
    last: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> sse.EventStream:
    """Server-sent events: what is behind `Last-Event-ID` (or `after`), then what happens, until the task's end.
    `delta` frames carry pieces of replies as they are written; they have no number and are not kept."""
    secret = secret_of(request)

    async def allowed() -> bool:
        return await parts.keyring.resolve(secret) == caller

    after = query.after if not last else _number(last)
    return sse.EventStream(sse.frames(parts.hub, caller.tenant_id, task_id, after, allowed))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise invalid("Last-Event-ID", "must be the number of an event")
    return int(text)
