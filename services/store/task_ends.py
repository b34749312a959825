"""The end of a task, in one transaction: reservations settled, rounds closed, sandboxes given back, the last event."""

import json
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Select, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.base import excerpt, read_stored
from agents.contracts.errors import ErrorInfo
from agents.contracts.event import AgentFinished, EventData, StepFailed, TaskCancelled, TaskCompleted, TaskFailed
from agents.contracts.ids import Role
from agents.contracts.model import Usage
from agents.contracts.run import BurstReason, TaskEnd, TaskRef
from agents.contracts.task import StopReason, TaskStatus
from agents.contracts.trajectory import StepReport
from services.store.approvals import withdraw
from services.store.events import Draft
from services.store.orchestration import locked_anyhow, tell
from services.store.sandbox_rows import released
from services.store.tables import agents, budget_reservations, rounds, snapshots, steps, tasks


async def write_end(conn: AsyncConnection, task: TaskRef, end: TaskEnd, at: datetime) -> TaskEnd:
    """Write the end once. A cancel that was asked for before this is what the task ends by: its sender was told so."""
    mine = (agents.c.tenant_id == task.tenant_id, agents.c.task_id == task.task_id)
    await conn.execute(select(agents.c.id).where(*mine).order_by(agents.c.id).with_for_update(key_share=True))
    await conn.execute(_open_reservations(task).order_by(budget_reservations.c.key).with_for_update())
    row = await locked_anyhow(conn, task)
    if row.ended_at is not None:
        error = read_stored(ErrorInfo, row.error) if row.error is not None else None
        return TaskEnd(stop_reason=StopReason(row.stop_reason), error=error)
    if row.cancel_requested_at is not None:
        end = TaskEnd(stop_reason=StopReason.CANCELLED)
    drafts = await withdraw(conn, task.tenant_id, task.task_id)
    drafts += await _close_rounds(conn, task, end, at) + await _close_steps(conn, task, row.plan_revision, end)
    drafts += await released(conn, task, at)
    await conn.execute(
        delete(snapshots).where(snapshots.c.tenant_id == task.tenant_id, snapshots.c.task_id == task.task_id)
    )
    usage = await _settle(conn, task, row, at)
    summary = await _summary(conn, task, row, end)
    drafts.append(Draft(_last(end, usage, summary)))
    values = {
        "status": _status(end.stop_reason).value,
        "waiting_for": None,
        "stop_reason": end.stop_reason.value,
        "error": end.error.model_dump(mode="json") if end.error else None,
        "summary": summary,
        "ended_at": at,
        "reserved_tokens": 0,
        "reserved_cost_micro": 0,
        "prompt_tokens": usage.prompt_tokens,
        "cost_micro": usage.cost_micro,
    }
    await conn.execute(update(tasks).where(tasks.c.tenant_id == task.tenant_id, tasks.c.id == row.id).values(values))
    await tell(conn, task, at, drafts)
    return end


def _open_reservations(task: TaskRef) -> Select[Any]:
    """Locked before the task, as everywhere; with the agents locked no new ones come."""
    return select(budget_reservations.c.key).where(
        budget_reservations.c.tenant_id == task.tenant_id,
        budget_reservations.c.task_id == task.task_id,
        budget_reservations.c.settled_at.is_(None),
    )


async def _close_rounds(conn: AsyncConnection, task: TaskRef, end: TaskEnd, at: datetime) -> list[Draft]:
    """Rounds that were cut short end here, so that an attempt which comes late finds that there is nothing to do."""
    of_task = select(agents.c.id).where(agents.c.tenant_id == task.tenant_id, agents.c.task_id == task.task_id)
    reason = BurstReason.CANCELLED
    cut = (
        update(rounds)
        .where(rounds.c.tenant_id == task.tenant_id, rounds.c.agent_id.in_(of_task), rounds.c.ended_at.is_(None))
        .values(ended_at=at, reason=reason.value)
        .returning(rounds.c.agent_id, rounds.c.round)
    )
    open_rounds = {row.agent_id: row.round for row in await conn.execute(cut)}
    stop = (
        update(agents)
        .where(agents.c.tenant_id == task.tenant_id, agents.c.id.in_(open_rounds))
        .values(state="finished", waiting_for=None, activity=end.stop_reason.value.replace("_", " "), activity_at=at)
        .returning(agents.c.id, agents.c.role, agents.c.step)
    )
    stopped = sorted((await conn.execute(stop)).all(), key=lambda agent: str(agent.id))
    return [
        Draft(
            AgentFinished(role=Role(a.role), step=a.step, round=open_rounds[a.id], reason=reason.value),
            agent_id=a.id,
            step_id=a.step,
        )
        for a in stopped
    ]


async def _close_steps(conn: AsyncConnection, task: TaskRef, revision: int, end: TaskEnd) -> list[Draft]:
    """A step of the present plan that was under way is not any more: it was not done. (A plan that was replaced keeps
    its steps as they were.)"""
    cut = (
        update(steps)
        .where(
            steps.c.tenant_id == task.tenant_id,
            steps.c.task_id == task.task_id,
            steps.c.epoch == task.epoch,
            steps.c.revision == revision,
            steps.c.state.in_(("running", "reviewing")),
        )
        .values(state="failed")
        .returning(steps.c.position, steps.c.step_id, steps.c.round)
    )
    left = sorted((await conn.execute(cut)).all(), key=lambda step: int(step.position))
    return [
        Draft(StepFailed(round=step.round, stop_reason=end.stop_reason, error=end.error), step_id=step.step_id)
        for step in left
    ]


async def _settle(conn: AsyncConnection, task: TaskRef, row: Row[Any], at: datetime) -> Usage:
    """What was reserved and never answered is charged as estimated; the task's whole usage."""
    still_open = (
        update(budget_reservations)
        .where(
            budget_reservations.c.tenant_id == task.tenant_id,
            budget_reservations.c.task_id == task.task_id,
            budget_reservations.c.settled_at.is_(None),
        )
        .values(settled_at=at)
        .returning(budget_reservations.c.tokens, budget_reservations.c.cost_micro)
    )
    lost = (await conn.execute(still_open)).all()
    return Usage(
        prompt_tokens=row.prompt_tokens + sum(r.tokens for r in lost),
        cached_tokens=row.cached_tokens,
        completion_tokens=row.completion_tokens,
        cost_micro=row.cost_micro + sum(r.cost_micro for r in lost),
    )


async def _summary(conn: AsyncConnection, task: TaskRef, row: Row[Any], end: TaskEnd) -> str:
    """What the steps reported; a task that was given up says why."""
    query = (
        select(steps.c.report)
        .where(
            steps.c.tenant_id == task.tenant_id,
            steps.c.task_id == task.task_id,
            steps.c.epoch == task.epoch,
            steps.c.revision == row.plan_revision,
            steps.c.report.is_not(None),
        )
        .order_by(steps.c.position)
    )
    reports = [read_stored(StepReport, report) for report in (await conn.execute(query)).scalars()]
    lines = [f"{r.title}: {r.summary}" if len(reports) > 1 else r.summary for r in reports]
    if end.stop_reason is StopReason.GAVE_UP:
        lines.append(await _why_given_up(conn, task))
    return excerpt("\n\n".join(line for line in lines if line))


async def _why_given_up(conn: AsyncConnection, task: TaskRef) -> str:
    query = (
        select(rounds.c.outcome)
        .join(agents, (agents.c.id == rounds.c.agent_id) & (agents.c.tenant_id == rounds.c.tenant_id))
        .where(
            agents.c.tenant_id == task.tenant_id,
            agents.c.task_id == task.task_id,
            rounds.c.reason == BurstReason.GAVE_UP.value,
            rounds.c.outcome.is_not(None),
        )
        .order_by(func.coalesce(rounds.c.ended_at, rounds.c.started_at).desc())
        .limit(1)
    )
    outcome = (await conn.execute(query)).scalar_one_or_none()
    return str(outcome.get("reason", json.dumps(outcome))) if outcome else ""


def _status(reason: StopReason) -> TaskStatus:
    if reason is StopReason.COMPLETED:
        return TaskStatus.COMPLETED
    return TaskStatus.CANCELLED if reason is StopReason.CANCELLED else TaskStatus.FAILED


def _last(end: TaskEnd, usage: Usage, summary: str) -> EventData:
    if end.stop_reason is StopReason.COMPLETED:
        return TaskCompleted(summary=summary, usage=usage)
    if end.stop_reason is StopReason.CANCELLED:
        return TaskCancelled(usage=usage)
    return TaskFailed(stop_reason=end.stop_reason, error=end.error, usage=usage)
