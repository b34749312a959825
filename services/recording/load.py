"""A task as the ledger has it, in the shape of a recording. Reads only; the tenant is in every query."""

from typing import Any

from sqlalchemy import Row, Text, cast, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.artifact import BlobRef
from agents.contracts.base import read_stored
from agents.contracts.errors import ErrorCode, ErrorInfo, LonghaulError
from agents.contracts.ids import Place
from agents.contracts.plan import Plan, StoredPlan
from agents.contracts.recorded import RecordedAgent, RecordedRound, RecordedTask
from agents.contracts.run import AgentRef, BurstReason
from agents.contracts.task import Limits
from agents.contracts.trajectory import Brief, Turn
from services.store.ledger_load import load_turns
from services.store.spill import Spill
from services.store.tables import agents, model_calls, plans, rounds, tasks, tool_calls, turns
from services.store.task_views import check_results, not_found
from workflows.ports import Objects
from workflows.records import Held

MAX_BYTES = 16 << 20
"""Inputs, replies and results of all turns together; a recording is about twice that."""


class Loader:
    """Reads one task of one tenant, in a transaction that has just begun: all of it as of one moment."""

    def __init__(
        self, conn: AsyncConnection, objects: Objects, tenant_id: str, task_id: str, *, max_bytes: int = MAX_BYTES
    ) -> None:
        self._max_bytes = max_bytes
        self._conn = conn
        self._objects = objects
        self._spill = Spill(objects)
        self._tenant = tenant_id
        self._task = task_id

    async def load(self) -> tuple[str, RecordedTask]:
        """The instruction, and the task without what was asked.

        Raises:
            LonghaulError: ``NOT_FOUND``, ``RECORDING_TOO_LARGE``, ``OBJECTS_UNAVAILABLE``.
        """
        await self._conn.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        query = select(tasks, func.now().label("recorded_at")).where(
            tasks.c.tenant_id == self._tenant, tasks.c.id == self._task
        )
        row = (await self._conn.execute(query)).one_or_none()
        if row is None:
            raise not_found(self._task)
        of_task = (agents.c.tenant_id == self._tenant) & (agents.c.task_id == self._task)
        query_agents = select(agents).where(of_task & (agents.c.epoch == row.epoch))
        found = (await self._conn.execute(query_agents.order_by(agents.c.created_at, agents.c.id))).all()
        await self._check_size([agent.id for agent in found])
        task = RecordedTask(
            id=row.id,
            status=row.status,
            stop_reason=row.stop_reason,
            error=_error(row.error),
            summary=row.summary or "",
            created_at=row.created_at,
            ended_at=row.ended_at,
            recorded_at=row.recorded_at,
            tier=row.tier,
            checks=tuple(row.spec["checks"]),
            limits=read_stored(Limits, row.spec["limits"]),
            check_results=tuple(await check_results(self._conn, self._tenant, row.id, row.epoch)),
            plans=await self._plans(row.epoch),
            agents=tuple([await self._agent(agent) for agent in found]),
        )
        return await self._instruction(row), task

    async def _instruction(self, row: Row[Any]) -> str:
        if row.instruction is not None:
            return str(row.instruction)
        return (await self._objects.get(self._tenant, read_stored(BlobRef, row.instruction_blob))).decode()

    async def _check_size(self, agent_ids: list[str]) -> None:
        size = 0
        for table, name in ((turns, "inputs"), (model_calls, "reply"), (tool_calls, "result")):
            inline = func.coalesce(func.octet_length(cast(table.c[name], Text)), 0)
            blob = func.coalesce(table.c[f"{name}_blob"]["bytes"].as_integer(), 0)
            mine = (table.c.tenant_id == self._tenant) & table.c.agent_id.in_(agent_ids)
            query = select(func.coalesce(func.sum(inline + blob), 0)).where(mine)
            size += int((await self._conn.execute(query)).scalar_one())
        if size > self._max_bytes:
            limit = self._max_bytes >> 20
            detail = f"the turns of this task hold {size >> 20} MiB; a recording is made of up to {limit} MiB"
            raise LonghaulError(ErrorCode.RECORDING_TOO_LARGE, detail)

    async def _plans(self, epoch: int) -> tuple[StoredPlan, ...]:
        mine = (plans.c.tenant_id == self._tenant) & (plans.c.task_id == self._task) & (plans.c.epoch == epoch)
        query = select(plans).where(mine).order_by(plans.c.revision)
        rows = [dict(row) for row in (await self._conn.execute(query)).mappings()]
        found = await self._spill.models(self._tenant, Plan, rows, "plan")
        pairs = zip(rows, found, strict=True)
        return tuple(StoredPlan(revision=row["revision"], plan=plan) for row, plan in pairs if plan is not None)

    async def _agent(self, row: Row[Any]) -> RecordedAgent:
        place = Place(task_id=row.task_id, epoch=row.epoch, role=row.role, revision=row.revision, step=row.step)
        brief = await self._spill.model(self._tenant, Brief, row.brief, row.brief_blob)
        held = Held(AgentRef(tenant_id=self._tenant, place=place, round=1), fence=0)
        taken = await load_turns(self._conn, self._spill, held, (0, 0))
        mine = (rounds.c.tenant_id == self._tenant) & (rounds.c.agent_id == row.id)
        found = (await self._conn.execute(select(rounds).where(mine).order_by(rounds.c.round))).all()
        return RecordedAgent(
            place=place, rounds=tuple([await self._round(one, place, brief, taken, row.round) for one in found])
        )

    async def _round(
        self, row: Row[Any], place: Place, brief: Brief | None, taken: list[Turn], last: int
    ) -> RecordedRound:
        own = await self._spill.model(self._tenant, Brief, row.brief, row.brief_blob)
        known = own or (brief if row.round == (last if place.role == "reviewer" else 1) else None)
        return RecordedRound(
            round=row.round,
            brief=known,
            reason=BurstReason(row.reason) if row.reason else None,
            error=_error(row.error),
            outcome=await self._spill.text(self._tenant, row.outcome, row.outcome_blob),
            turns=tuple(turn for turn in taken if turn.round == row.round),
        )


def _error(stored: Any) -> ErrorInfo | None:
    return ErrorInfo.model_validate(stored) if stored is not None else None
