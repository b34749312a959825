"""``/v1/tasks/{id}/checkpoints``: workspaces that were kept, looked into without a sandbox."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from starlette.responses import StreamingResponse

from agents.contracts.base import Edge
from agents.contracts.checkpoint import Checkpoint, CheckpointChange, CheckpointDiff, CheckpointEntry, CheckpointFiles
from services.api.auth import Reader
from services.api.ids import CheckpointId, TaskId
from services.api.parts import Parts, Using
from services.api.ranges import asked_span
from services.snapshots.format import Entry, File, Link
from services.snapshots.looking import Change, Look, compare
from services.store import checkpoints, task_views
from services.store.keys import Principal

router = APIRouter(prefix="/v1/tasks/{task_id}/checkpoints", tags=["checkpoints"])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FilesQuery(Edge):
    """What a list of files understands."""

    after: Annotated[str, Field(max_length=8_192)] = ""
    limit: Annotated[int, Field(ge=1, le=1_000)] = 200


class DiffQuery(Edge):
    """What a comparison understands. `since` is another checkpoint of the task; without it the one before."""

    since: CheckpointId | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 200


@router.get("", summary="A task's checkpoints")
async def of_task(caller: Reader, parts: Using, task_id: TaskId) -> list[Checkpoint]:
    """In the order in which they were taken."""
    async with parts.db.begin() as conn:
        await task_views.require(conn, caller.tenant_id, task_id)
        return await checkpoints.of_task(conn, caller.tenant_id, task_id)


@router.get("/{checkpoint_id}/files", summary="What a checkpoint holds")
async def files(
    caller: Reader,
    parts: Using,
    task_id: TaskId,
    checkpoint_id: CheckpointId,
    query: Annotated[FilesQuery, Query()],
) -> CheckpointFiles:
    """Files, folders and links, a page at a time."""
    look = await _look(parts, caller, await _get(parts, caller, task_id, checkpoint_id))
    found = await asyncio.to_thread(lambda: list(islice(look.walk(query.after.encode()), query.limit + 1)))
    data = [entry_of(path, entry) for path, entry in found[: query.limit]]
    return CheckpointFiles(data=data, next_after=data[-1].path if len(found) > query.limit else None)


@router.get("/{checkpoint_id}/files/{path:path}", summary="The bytes of a file at a checkpoint")
async def content(
    request: Request, caller: Reader, parts: Using, task_id: TaskId, checkpoint_id: CheckpointId, path: str
) -> Response:
    """The bytes, or one range of them. Links are not followed."""
    look = await _look(parts, caller, await _get(parts, caller, task_id, checkpoint_id))
    file = await asyncio.to_thread(look.file, path.encode())
    etag = f'"{checkpoint_id}"'
    span = asked_span(request.headers, file.size, etag)
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.rsplit('/', 1)[-1], safe='')}",
        "Cache-Control": "private, no-cache",
        "Content-Length": str(span.length),
    }
    if span.partial:
        headers["Content-Range"] = f"bytes {span.first}-{span.last}/{file.size}"
    body = await _begun(look.content(file, span.first, span.last))
    return StreamingResponse(body, 206 if span.partial else 200, headers, media_type="application/octet-stream")


@router.get("/{checkpoint_id}/diff", summary="What changed up to a checkpoint")
async def diff(
    caller: Reader,
    parts: Using,
    task_id: TaskId,
    checkpoint_id: CheckpointId,
    query: Annotated[DiffQuery, Query()],
) -> CheckpointDiff:
    """Paths that were added, removed or changed since another checkpoint, or since the one before."""
    after = await _get(parts, caller, task_id, checkpoint_id)
    before = await _before(parts, caller, after, query.since)
    now = await _look(parts, caller, after)
    was = await _look(parts, caller, before) if before else None
    found = await asyncio.to_thread(lambda: list(compare(was, now)))
    data = [_change(change) for change in found[: query.limit]]
    return CheckpointDiff(before=before.id if before else None, after=after.id, data=data, total=len(found))


async def _get(parts: Parts, caller: Principal, task_id: str, checkpoint_id: str) -> Checkpoint:
    async with parts.db.begin() as conn:
        await task_views.require(conn, caller.tenant_id, task_id)
        return await checkpoints.get(conn, caller.tenant_id, task_id, checkpoint_id)


async def _before(parts: Parts, caller: Principal, after: Checkpoint, since: str | None) -> Checkpoint | None:
    if since is not None:
        return await _get(parts, caller, after.task_id, since)
    async with parts.db.begin() as conn:
        rows = await checkpoints.of_task(conn, caller.tenant_id, after.task_id)
    at = next(n for n, row in enumerate(rows) if row.id == after.id)
    return rows[at - 1] if at else None


async def _look(parts: Parts, caller: Principal, checkpoint: Checkpoint) -> Look:
    return await asyncio.to_thread(Look, parts.shelf_of(caller.tenant_id), checkpoint.manifest)


def entry_of(path: bytes, entry: Entry) -> CheckpointEntry:
    """An entry as it is answered."""
    kind: Literal["file", "folder", "link"] = (
        "file" if isinstance(entry, File) else "link" if isinstance(entry, Link) else "folder"
    )
    return CheckpointEntry(
        path=path.decode(errors="replace"),
        kind=kind,
        mode=0o777 if isinstance(entry, Link) else entry.mode,
        bytes=entry.size if isinstance(entry, File) else 0,
        modified_at=_time(entry.mtime_ns),
        target=entry.target.decode(errors="replace") if isinstance(entry, Link) else None,
    )


def _time(mtime_ns: int) -> datetime:
    """A file's time, which may be any: one that no calendar has is shown as the nearest."""
    try:
        return _EPOCH + timedelta(microseconds=mtime_ns // 1000)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if mtime_ns > 0 else datetime.min.replace(tzinfo=UTC)


def _change(change: Change) -> CheckpointChange:
    before = entry_of(change.path, change.before) if change.before is not None else None
    after = entry_of(change.path, change.after) if change.after is not None else None
    kind: Literal["added", "removed", "changed"] = (
        "added" if before is None else "removed" if after is None else "changed"
    )
    return CheckpointChange(path=change.path.decode(errors="replace"), change=kind, before=before, after=after)


async def _begun(data: Iterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, of which the first have come: what S3 refuses is told before the answer begins."""
    first = await asyncio.to_thread(next, data, None)

    async def rest() -> AsyncIterator[bytes]:
        piece = first
        while piece is not None:
            yield piece
            piece = await asyncio.to_thread(next, data, None)

    return rest()
