"""Rounds of agents and the plan: `workflows.task_ports.RoundStore` on PostgreSQL."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.artifact import BlobRef
from agents.contracts.base import excerpt, read_stored
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.event import AgentStarted, MessageSent
from agents.contracts.ids import Role, short_digest
from agents.contracts.message import name_of
from agents.contracts.plan import Plan, StoredPlan
from agents.contracts.run import AgentRef, PlanShape, StepShape, TaskRef
from agents.contracts.sandbox import DEFAULT_TEMPLATE
from agents.contracts.task import Limits, TaskStatus
from agents.contracts.trajectory import Brief, StepReport
from services.store.database import Database
from services.store.events import Draft
from services.store.ledger_step import retryable
from services.store.mail import welcome
from services.store.orchestration import locked, set_status, tell
from services.store.plan_events import plan_event
from services.store.spill import Body, Spill, line
from services.store.tables import agents, messages, plans, rounds, steps, tasks
from workflows.clock import Clock
from workflows.names import task_of
from workflows.ports import Objects
from workflows.task_ports import Material


class SqlRounds:
    """Implements `workflows.task_ports.RoundStore`."""

    def __init__(self, db: Database, objects: Objects, clock: Clock) -> None:
        self._db = db
        self._objects = objects
        self._spill = Spill(objects)
        self._clock = clock

    async def material(self, ref: AgentRef) -> Material:
        """Read afresh: the plan and the reports are those of this moment."""
        task = task_of(ref)
        async with retryable(self._db) as conn:
            query = select(tasks).where(tasks.c.tenant_id == task.tenant_id, tasks.c.id == task.task_id)
            row = (await conn.execute(query)).one()
            plan = await self._plan(conn, task, row.plan_revision)
            reports = await _reports(conn, task, row.plan_revision)
        return Material(
            goal=await self._goal(row),
            instruction_sha256=row.instruction_sha256,
            tier=row.tier,
            recording=row.spec.get("recording"),
            checks=tuple(row.spec["checks"]),
            limits=read_stored(Limits, row.spec["limits"]),
            plan=plan,
            reports=reports,
            tools=row.spec.get("tools", {}),
            network=tuple(row.spec.get("network", {}).get("allow", ())),
            template=row.spec.get("template", DEFAULT_TEMPLATE),
        )

    async def outcome(self, ref: AgentRef) -> str:
        """From the round's row."""
        query = select(rounds.c.outcome, rounds.c.outcome_blob).where(
            rounds.c.tenant_id == ref.tenant_id,
            rounds.c.agent_id == ref.place.agent_id,
            rounds.c.round == ref.round,
        )
        async with retryable(self._db) as conn:
            row = (await conn.execute(query)).one_or_none()
        text = await self._spill.text(ref.tenant_id, row.outcome, row.outcome_blob) if row else None
        if text is None:
            raise LonghaulError(ErrorCode.NOT_FOUND, f"round {ref.round} of {ref.place.path} handed nothing in")
        return text

    async def open_round(self, ref: AgentRef, brief: Brief, findings: Sequence[str]) -> None:
        """An agent that exists keeps its brief, except a reviewer: each of its rounds begins anew."""
        now, task = self._clock.now(), task_of(ref)
        body = await self._spill.pack(ref.tenant_id, brief)
        async with retryable(self._db) as conn:
            await _upsert_agent(conn, ref, body, now)
            row: dict[str, Any] = {
                "tenant_id": ref.tenant_id,
                "agent_id": ref.place.agent_id,
                "round": ref.round,
                "started_at": now,
            }
            if ref.place.role is Role.REVIEWER:
                row |= {"brief": _decoded(body.inline), "brief_blob": _decoded(body.blob)}
            new = upsert(rounds).values(row).on_conflict_do_nothing().returning(rounds.c.round)
            if (await conn.execute(new)).first() is None:
                return
            await welcome(conn, ref, now)
            mailed = await _mail(conn, ref, findings, now)
            task_row = await locked(conn, task)
            status = await set_status(conn, task, task_row, TaskStatus.PLANNING) if _plans(ref) else []
            started = AgentStarted(role=ref.place.role, step=ref.place.step, round=ref.round)
            drafts = [*status, *mailed, Draft(started, agent_id=ref.place.agent_id, step_id=ref.place.step)]
            await tell(conn, task, now, drafts)

    async def record_plan(self, planner: AgentRef, revision: int, plan: Plan) -> PlanShape:
        """The plan, its steps, and the event; the shape of what is stored."""
        now, task = self._clock.now(), task_of(planner)
        body = await self._spill.pack(task.tenant_id, plan)
        async with retryable(self._db) as conn:
            row = await locked(conn, task)
            if row.plan_revision < revision:
                await _insert_plan(conn, task, revision, body, now)
                await _insert_steps(conn, task, revision, plan)
                mine = (tasks.c.tenant_id == task.tenant_id, tasks.c.id == task.task_id)
                await conn.execute(update(tasks).where(*mine).values(plan_revision=revision))
                status = await set_status(conn, task, row, TaskStatus.RUNNING)
                told = Draft(plan_event(revision, plan), agent_id=planner.place.agent_id)
                await tell(conn, task, now, [told, *status])
        shapes = [StepShape(id=s.id, depends_on=tuple(s.depends_on), resources=tuple(s.resources)) for s in plan.steps]
        return PlanShape(revision=revision, steps=tuple(shapes))

    async def _goal(self, row: Row[Any]) -> str:
        if row.instruction is not None:
            return str(row.instruction)
        return (await self._objects.get(row.tenant_id, read_stored(BlobRef, row.instruction_blob))).decode()

    async def _plan(self, conn: AsyncConnection, task: TaskRef, revision: int) -> StoredPlan | None:
        query = select(plans.c.plan, plans.c.plan_blob).where(
            plans.c.tenant_id == task.tenant_id,
            plans.c.task_id == task.task_id,
            plans.c.epoch == task.epoch,
            plans.c.revision == revision,
        )
        row = (await conn.execute(query)).one_or_none()
        plan = await self._spill.model(task.tenant_id, Plan, row.plan, row.plan_blob) if row else None
        return StoredPlan(revision=revision, plan=plan) if plan else None


def _plans(ref: AgentRef) -> bool:
    return ref.place.role is Role.PLANNER


async def _reports(conn: AsyncConnection, task: TaskRef, revision: int) -> dict[str, StepReport]:
    query = (
        select(steps.c.step_id, steps.c.report)
        .where(
            steps.c.tenant_id == task.tenant_id,
            steps.c.task_id == task.task_id,
            steps.c.epoch == task.epoch,
            steps.c.revision == revision,
            steps.c.report.is_not(None),
        )
        .order_by(steps.c.position)
    )
    return {row.step_id: read_stored(StepReport, row.report) for row in await conn.execute(query)}


async def _upsert_agent(conn: AsyncConnection, ref: AgentRef, body: Body, now: datetime) -> None:
    place = ref.place
    brief = {"brief": _decoded(body.inline), "brief_blob": _decoded(body.blob)}
    row = {
        "id": place.agent_id,
        "tenant_id": ref.tenant_id,
        "task_id": place.task_id,
        "epoch": place.epoch,
        "role": place.role.value,
        "revision": place.revision,
        "step": place.step,
        "round": ref.round,
        "state": "running",
        "activity": "starting",
        "activity_at": now,
        "created_at": now,
        **brief,
    }
    again: dict[str, Any] = {
        "round": ref.round,
        "state": "running",
        "activity": "starting",
        "activity_at": now,
        "waiting_for": None,
    }
    if place.role is Role.REVIEWER:
        again |= brief
    statement = upsert(agents).values(row)
    await conn.execute(
        statement.on_conflict_do_update(index_elements=[agents.c.id], set_=again, where=agents.c.round < ref.round)
    )


async def _mail(conn: AsyncConnection, ref: AgentRef, findings: Sequence[str], now: datetime) -> list[Draft]:
    """Put findings into the agent's mailbox, numbered under its row lock."""
    if not findings:
        return []
    mine = (agents.c.tenant_id == ref.tenant_id, agents.c.id == ref.place.agent_id)
    count = update(agents).where(*mine).values(mail_sent=agents.c.mail_sent + 1).returning(agents.c.mail_sent)
    seq = (await conn.execute(count)).scalar_one()
    text = line("\n".join(f"- {finding}" for finding in findings))
    message_id = f"msg_{short_digest(f'{ref.place.path}/{ref.round}/findings')}"
    row = {
        "id": message_id,
        "tenant_id": ref.tenant_id,
        "task_id": ref.place.task_id,
        "agent_id": ref.place.agent_id,
        "seq": seq,
        "recipient": name_of(ref.place),
        "kind": "findings",
        "sender": Role.REVIEWER.value,
        "text": text,
        "sent_at": now,
        "delivered_at": now,
    }
    await conn.execute(insert(messages).values(row))
    sent = MessageSent(
        message_id=message_id,
        sender=Role.REVIEWER.value,
        to=name_of(ref.place),
        text=excerpt(text),
        kind="findings",
    )
    return [Draft(sent, agent_id=ref.place.agent_id, step_id=ref.place.step)]


async def _insert_plan(conn: AsyncConnection, task: TaskRef, revision: int, body: Body, now: datetime) -> None:
    row = {
        "tenant_id": task.tenant_id,
        "task_id": task.task_id,
        "epoch": task.epoch,
        "revision": revision,
        "plan": _decoded(body.inline),
        "plan_blob": _decoded(body.blob),
        "created_at": now,
    }
    await conn.execute(insert(plans).values(row))


async def _insert_steps(conn: AsyncConnection, task: TaskRef, revision: int, plan: Plan) -> None:
    """Steps that an earlier revision has done under the same id stay done."""
    query = select(steps).where(
        steps.c.tenant_id == task.tenant_id,
        steps.c.task_id == task.task_id,
        steps.c.epoch == task.epoch,
        steps.c.revision == revision - 1,
        steps.c.state == "completed",
    )
    done = {row.step_id: row for row in await conn.execute(query)}
    rows = []
    for position, step in enumerate(plan.steps):
        before = done.get(step.id)
        rows.append(
            {
                "tenant_id": task.tenant_id,
                "task_id": task.task_id,
                "epoch": task.epoch,
                "revision": revision,
                "step_id": step.id,
                "position": position,
                "title": line(step.title),
                "depends_on": step.depends_on,
                "state": "completed" if before else "pending",
                "round": before.round if before else 0,
                "report": before.report if before else None,
            }
        )
    await conn.execute(insert(steps), rows)


def _decoded(text: str | None) -> Any:
    return None if text is None else json.loads(text)
