"""``/v1/tasks``: submit, list, look, cancel."""

import hashlib
from posixpath import normpath
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from agents.contracts.artifact import BlobRef
from agents.contracts.base import Edge
from agents.contracts.errors import ErrorCode, FieldProblem, LonghaulError
from agents.contracts.page import TaskPage
from agents.contracts.task import TaskResult, TaskSpec, TaskStatus, TaskView
from agents.tools.registry import work_tools
from services.api import cursor as cursors
from services.api.auth import Reader, Submitter
from services.api.bodies import read_json
from services.api.docs import SPEC_EXAMPLES, body_of
from services.api.ids import TaskId
from services.api.once import Key, once_of
from services.api.parts import Parts, Using
from services.api.problems import InvalidRequest
from services.ids import new_id
from services.store import files, idempotency, task_views, tasks
from services.store.idempotency import Once
from services.store.tables import ROW_CAP_BYTES

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])

MAX_WAIT_S = 60.0


class ListQuery(Edge):
    """What ``GET /v1/tasks`` understands."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: str | None = None
    order: Literal["asc", "desc"] = "desc"
    status: Annotated[list[TaskStatus], Field(max_length=len(TaskStatus), default_factory=list)]


class CancelQuery(Edge):
    """What cancel understands. `wait_s` is for how many seconds to wait for the end."""

    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] = 0.0


@router.post("", status_code=202, summary="Submit a task", openapi_extra=body_of(TaskSpec, SPEC_EXAMPLES))
async def submit(request: Request, response: Response, caller: Submitter, parts: Using, key: Key = None) -> TaskView:
    """Accept a task. The answer comes once the task is stored: from then on it waits for its turn, and will be worked
    on whatever happens."""
    spec = await read_json(request, TaskSpec)
    _check_paths(spec)
    _check_tools(spec)
    once = once_of(caller.tenant_id, key, spec)
    view = await _answered(parts, once) or await _accept(parts, caller.tenant_id, spec, once)
    response.headers["Location"] = f"/v1/tasks/{view.id}"
    return view


@router.get("", summary="List tasks")
async def list_tasks(caller: Reader, parts: Using, query: Annotated[ListQuery, Query()]) -> TaskPage:
    """A page of tasks, the newest first unless `order=asc`."""
    behind = cursors.read(query.cursor, query.order) if query.cursor is not None else None
    async with parts.db.begin() as conn:
        found = await task_views.page(
            conn,
            caller.tenant_id,
            limit=query.limit + 1,
            behind=behind,
            newest_first=query.order == "desc",
            statuses=query.status,
        )
    more = len(found) > query.limit
    data = found[: query.limit]
    after = cursors.behind(data[-1].created_at, data[-1].id, query.order) if more else None
    return TaskPage(data=data, next_cursor=after)


@router.get("/{task_id}", summary="Look at a task")
async def get_task(caller: Reader, parts: Using, task_id: TaskId) -> TaskView:
    """The task as it is now; `as_of` is the database's clock, from which the ages of things follow."""
    async with parts.db.begin() as conn:
        return await task_views.view(conn, caller.tenant_id, task_id)


@router.get("/{task_id}/result", summary="The result of an ended task")
async def get_result(caller: Reader, parts: Using, task_id: TaskId) -> TaskResult:
    """What the task came to; 409 `NOT_FINISHED` until it has ended."""
    async with parts.db.begin() as conn:
        return await task_views.result(conn, caller.tenant_id, task_id)


@router.post("/{task_id}/cancel", status_code=202, summary="Cancel a task")
async def cancel(
    response: Response, caller: Submitter, parts: Using, task_id: TaskId, query: Annotated[CancelQuery, Query()]
) -> TaskView:
    """Ask for the end. 202 while it is stopping, 200 once it is cancelled; asking again is harmless. 409
    `ALREADY_FINISHED` for a task that completed or failed."""
    async with parts.db.begin() as conn:
        done = await tasks.cancel(conn, caller.tenant_id, task_id)
    await parts.live.poke()
    if done.control_seq is not None:
        await parts.live.control(caller.tenant_id, task_id)
        await parts.hub.wait_for_end(caller.tenant_id, task_id, query.wait_s)
    async with parts.db.begin() as conn:
        view = await task_views.view(conn, caller.tenant_id, task_id)
    response.status_code = 200 if view.status.ended else 202
    return view


async def _answered(parts: Parts, once: Once | None) -> TaskView | None:
    if once is None:
        return None
    async with parts.db.begin() as conn:
        return await idempotency.answered(conn, once, TaskView)


async def _accept(parts: Parts, tenant_id: str, spec: TaskSpec, once: Once | None) -> TaskView:
    parts.storage.check()
    _check_model(parts, spec)
    await parts.limits.check(spec.sandbox, spec.network)
    await parts.limits.check_template(spec.template)
    new = await _new_task(parts, tenant_id, spec)
    async with parts.db.begin() as conn:
        if once is not None:
            await idempotency.claim(conn, once)
            if (answer := await idempotency.answered(conn, once, TaskView)) is not None:
                return answer
        _check_files(spec, await files.missing(conn, tenant_id, _file_fields(spec).values()))
        view = await tasks.accept(conn, new)
        if once is not None:
            await idempotency.keep(conn, once, view, f"/v1/tasks/{view.id}")
    await parts.live.poke()
    return view


async def _new_task(parts: Parts, tenant_id: str, spec: TaskSpec) -> tasks.NewTask:
    text = spec.instruction.encode()
    blob: BlobRef | None = None
    if len(text) > ROW_CAP_BYTES:
        blob = await parts.objects.put(tenant_id, text)
    digest = hashlib.sha256(text).hexdigest()
    return tasks.NewTask(new_id("task"), tenant_id, spec, instruction_sha256=digest, instruction_blob=blob)


def _check_model(parts: Parts, spec: TaskSpec) -> None:
    if spec.tier != "replay" and not parts.model_configured:
        raise LonghaulError(
            ErrorCode.MODEL_NOT_CONFIGURED,
            f"tier '{spec.tier}' needs a model: set LONGHAUL_MODEL_BASE_URL and LONGHAUL_MODEL_FULL (where it applies "
            "also LONGHAUL_MODEL_FAST and LONGHAUL_MODEL_API_KEY) and start the stack again",
        )


def _check_paths(spec: TaskSpec) -> None:
    found, taken = [], {"."}
    for n, file in enumerate(spec.files):
        if (path := normpath(file.path)) in taken:
            why = "must name a file" if path == "." else "is the path of another file too"
            found.append(FieldProblem(field=f"files.{n}.path", message=why))
        taken.add(path)
    if found:
        raise InvalidRequest(found)


def _check_tools(spec: TaskSpec) -> None:
    """A word about a tool that is not there would silently do nothing."""
    if unknown := sorted(set(spec.tools) - set(work_tools())):
        why = f"there is no such tool; there are {', '.join(work_tools())}"
        raise InvalidRequest([FieldProblem(field=f"tools.{name}", message=why) for name in unknown])


def _file_fields(spec: TaskSpec) -> dict[str, str]:
    fields = {f"files.{n}.file_id": file.file_id for n, file in enumerate(spec.files)}
    return fields | ({"repo.file_id": spec.repo.file_id} if spec.repo else {})


def _check_files(spec: TaskSpec, missing: set[str]) -> None:
    fields = _file_fields(spec).items()
    if found := [FieldProblem(field=f, message=f"there is no file {i}") for f, i in fields if i in missing]:
        raise InvalidRequest(found)
