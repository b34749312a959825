"""What anyone may see of tasks: rows read into the contracts' views. Nothing here writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, func, select, tuple_, union_all
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.model import Usage
from agents.contracts.task import AgentView, CheckResult, StepView, TaskResult, TaskStatus, TaskSummary, TaskView
from services.store.artifacts import of_task
from services.store.queue_position import position
from services.store.tables import agents, checks, steps, tasks

SUMMARY_CHARS = 200

_LARGE = {"instruction", "instruction_blob", "spec", "summary", "error"}
_WAITS = (
    select(agents.c.waiting_for)
    .where(agents.c.tenant_id == tasks.c.tenant_id, agents.c.task_id == tasks.c.id, agents.c.state == "waiting")
    .where(agents.c.waiting_for.in_(("person", "approval")), tasks.c.ended_at.is_(None))
    .limit(1)
    .scalar_subquery()
    .label("agent_waits")
)
"""That an agent waits for a person, also where others of its task go on."""

_SUMMARY = [*(column for column in tasks.c if column.name not in _LARGE), _WAITS]


@dataclass(frozen=True)
class Position:
    """A place in the list of tasks: just behind this one."""

    created_at: datetime
    id: str


def not_found(task_id: str) -> LonghaulError:
    """The answer for a task that is not there, or is another tenant's."""
    return LonghaulError(ErrorCode.NOT_FOUND, f"there is no task {task_id}")


async def require(conn: AsyncConnection, tenant_id: str, task_id: str) -> None:
    """Only look whether the tenant has this task.

    Raises:
        LonghaulError: ``NOT_FOUND``.
    """
    mine = (tasks.c.tenant_id == tenant_id, tasks.c.id == task_id)
    if (await conn.execute(select(tasks.c.id).where(*mine))).first() is None:
        raise not_found(task_id)


async def view(conn: AsyncConnection, tenant_id: str, task_id: str) -> TaskView:
    """One task as it is now.

    Raises:
        LonghaulError: ``NOT_FOUND``.
    """
    mine = (tasks.c.tenant_id == tenant_id, tasks.c.id == task_id)
    row = (
        (await conn.execute(select(tasks, _WAITS, func.clock_timestamp().label("as_of")).where(*mine)))
        .mappings()
        .first()
    )
    if row is None:
        raise not_found(task_id)
    return TaskView.model_validate(
        {
            **_summary(row),
            "queue_position": await position(conn, tenant_id, row),
            "limits": row["spec"]["limits"],
            "checks": row["spec"]["checks"],
            "steps": await _steps(conn, tenant_id, row),
            "agents": await _agents(conn, tenant_id, row),
        }
    )


async def page(
    conn: AsyncConnection,
    tenant_id: str,
    *,
    limit: int,
    behind: Position | None = None,
    newest_first: bool = True,
    statuses: Sequence[TaskStatus] = (),
) -> list[TaskSummary]:
    """`limit` tasks behind a place, ordered by the time of acceptance and then the id."""
    query = page_query(tenant_id, limit=limit, behind=behind, newest_first=newest_first, statuses=statuses)
    return [TaskSummary.model_validate(_summary(row)) for row in (await conn.execute(query)).mappings()]


def page_query(
    tenant_id: str, *, limit: int, behind: Position | None, newest_first: bool, statuses: Sequence[TaskStatus]
) -> Any:
    """The query of `page`. Each status is read in its own order and cut, then they are merged: so nothing is sorted
    but `limit` rows a status, however many tasks the tenant has."""
    query: Select[Any] = select(*_SUMMARY).where(tasks.c.tenant_id == tenant_id)
    place = tuple_(tasks.c.created_at, tasks.c.id)
    if behind is not None:
        at = tuple_(behind.created_at, behind.id)
        query = query.where(place < at if newest_first else place > at)
    columns = (tasks.c.created_at, tasks.c.id)
    query = query.order_by(*(c.desc() for c in columns) if newest_first else columns).limit(limit)
    chosen = sorted({status.value for status in statuses})
    if len(chosen) < 2:
        return query.where(*(tasks.c.status == status for status in chosen))
    every = union_all(*(query.where(tasks.c.status == status).subquery().select() for status in chosen)).subquery()
    order = (every.c.created_at, every.c.id)
    return every.select().order_by(*(c.desc() for c in order) if newest_first else order).limit(limit)


async def result(conn: AsyncConnection, tenant_id: str, task_id: str) -> TaskResult:
    """What an ended task came to.

    Raises:
        LonghaulError: ``NOT_FOUND``; ``NOT_FINISHED`` until the task has ended.
    """
    mine = (tasks.c.tenant_id == tenant_id, tasks.c.id == task_id)
    row = (await conn.execute(select(tasks).where(*mine))).mappings().first()
    if row is None:
        raise not_found(task_id)
    if not TaskStatus(row["status"]).ended:
        raise LonghaulError(ErrorCode.NOT_FINISHED, f"task {task_id} is {row['status']}; its result comes at its end")
    return TaskResult.model_validate(
        {
            **_summary(row),
            "error": row["error"],
            "summary": row["summary"] or "",
            "checks": await check_results(conn, tenant_id, task_id, row["epoch"]),
            "artifacts": await of_task(conn, tenant_id, task_id),
            "seconds": max(0.0, (row["ended_at"] - row["created_at"]).total_seconds()),
        }
    )


def _summary(row: RowMapping) -> dict[str, Any]:
    """The row with `usage` gathered and the instruction cut; columns that no view names are ignored by them."""
    usage = Usage.model_validate(dict(row))
    waiting_for = row["waiting_for"] or row.get("agent_waits")
    return {
        **row,
        "waiting_for": waiting_for,
        "usage": usage,
        "instruction": row["instruction_excerpt"][:SUMMARY_CHARS],
    }


async def _steps(conn: AsyncConnection, tenant_id: str, task: RowMapping) -> list[StepView]:
    query = (
        select(steps)
        .where(
            steps.c.tenant_id == tenant_id,
            steps.c.task_id == task["id"],
            steps.c.epoch == task["epoch"],
            steps.c.revision == task["plan_revision"],
        )
        .order_by(steps.c.position)
    )
    rows = (await conn.execute(query)).mappings()
    return [
        StepView.model_validate({**row, "id": row["step_id"], "summary": (row["report"] or {}).get("summary")})
        for row in rows
    ]


async def _agents(conn: AsyncConnection, tenant_id: str, task: RowMapping) -> list[AgentView]:
    query = (
        select(agents)
        .where(agents.c.tenant_id == tenant_id, agents.c.task_id == task["id"], agents.c.epoch == task["epoch"])
        .order_by(agents.c.created_at, agents.c.id)
    )
    return [AgentView.model_validate(dict(row)) for row in (await conn.execute(query)).mappings()]


async def check_results(conn: AsyncConnection, tenant_id: str, task_id: str, epoch: int) -> list[CheckResult]:
    """The results of the last time the task's checks ran."""
    mine = and_(checks.c.tenant_id == tenant_id, checks.c.task_id == task_id, checks.c.epoch == epoch)
    last = (
        select(checks.c.revision, checks.c.round).where(mine).order_by(checks.c.revision.desc(), checks.c.round.desc())
    )
    query = (
        select(checks.c.result)
        .where(mine, tuple_(checks.c.revision, checks.c.round) == last.limit(1).scalar_subquery())
        .order_by(checks.c.position)
    )
    return [CheckResult.model_validate(value) for value in (await conn.execute(query)).scalars()]
