"""A task's beginning, its sandboxes, its end: `workflows.task_ports.TaskStore` on PostgreSQL."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.artifact import BlobRef
from agents.contracts.base import read_stored
from agents.contracts.event import SandboxClaimed, TaskStarted
from agents.contracts.network import NetworkPolicy
from agents.contracts.run import Controls, TaskEnd, TaskRef, TaskStart
from agents.contracts.sandbox import DEFAULT_TEMPLATE, SandboxInfo, SandboxLimits, SandboxState
from agents.contracts.task import InputFile, Limits, Repo, TaskStatus
from services.store import files
from services.store.database import Database
from services.store.events import Draft
from services.store.ledger_step import retryable
from services.store.orchestration import locked, locked_anyhow, set_status, tell
from services.store.sandbox_rows import EXPECTED, released
from services.store.tables import agents, sandboxes, tasks
from services.store.task_ends import write_end
from workflows.clock import Clock
from workflows.names import SANDBOX_FENCE
from workflows.task_ports import Closing, InputBlob, Purpose, TaskInputs


class SqlTasks:
    """Implements `workflows.task_ports.TaskStore`."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def begin(self, task: TaskRef) -> TaskStart:
        """Started once, however often it is called."""
        now = self._clock.now()
        async with retryable(self._db) as conn:
            row = await locked(conn, task)
            if row.started_at is None:
                await conn.execute(update(tasks).where(tasks.c.id == task.task_id).values(started_at=now))
                status = await set_status(conn, task, row, TaskStatus.PLANNING)
                await tell(conn, task, now, [Draft(TaskStarted()), *status])
        limits = read_stored(Limits, row.spec["limits"])
        return TaskStart(
            limits=limits,
            has_checks=bool(row.spec["checks"]),
            deadline_s=_seconds_left(row, limits, now),
            cancel_requested=row.cancel_requested_at is not None,
        )

    async def controls(self, task: TaskRef) -> Controls:
        """The control columns."""
        query = select(tasks.c.control_seq, tasks.c.cancel_requested_at).where(
            tasks.c.tenant_id == task.tenant_id, tasks.c.id == task.task_id
        )
        async with retryable(self._db) as conn:
            row = (await conn.execute(query)).one()
        return Controls(control_seq=row.control_seq, cancel_requested=row.cancel_requested_at is not None)

    async def inputs(self, task: TaskRef) -> TaskInputs:
        """From the spec and the uploads it names."""
        query = select(tasks.c.spec).where(tasks.c.tenant_id == task.tenant_id, tasks.c.id == task.task_id)
        async with retryable(self._db) as conn:
            spec = (await conn.execute(query)).scalar_one()
            repo = read_stored(Repo, spec["repo"]) if spec.get("repo") else None
            wanted = [read_stored(InputFile, item) for item in spec.get("files", [])]
            placed = [InputBlob(f.path, await _blob(conn, task, f.file_id)) for f in wanted]
            return TaskInputs(
                repo=await _blob(conn, task, repo.file_id) if repo else None,
                files=tuple(placed),
                sandbox=read_stored(SandboxLimits, spec.get("sandbox", {})),
                network=read_stored(NetworkPolicy, spec.get("network", {})),
                template=spec.get("template", DEFAULT_TEMPLATE),
            )

    async def expect(self, task: TaskRef, sandbox_id: str, purpose: Purpose) -> None:
        """A row without an event: there is nothing yet."""
        row = {
            "id": sandbox_id,
            "tenant_id": task.tenant_id,
            "task_id": task.task_id,
            "purpose": purpose,
            "state": EXPECTED,
            "fence": SANDBOX_FENCE,
            "backend": "",
            "created_at": self._clock.now(),
        }
        async with retryable(self._db) as conn:
            await locked(conn, task)
            await conn.execute(insert(sandboxes).values(row).on_conflict_do_nothing())

    async def claim(self, task: TaskRef, sandbox: SandboxInfo) -> None:
        """Told once per sandbox."""
        now = self._clock.now()
        made = (
            update(sandboxes)
            .where(
                sandboxes.c.tenant_id == task.tenant_id,
                sandboxes.c.id == sandbox.id,
                sandboxes.c.state == EXPECTED,
            )
            .values(state=SandboxState.READY.value, fence=sandbox.fence, backend=sandbox.backend)
            .returning(sandboxes.c.purpose)
        )
        async with retryable(self._db) as conn:
            await locked(conn, task)
            purpose = (await conn.execute(made)).scalar_one_or_none()
            if purpose is not None:
                claimed = SandboxClaimed(sandbox_id=sandbox.id, backend=sandbox.backend, purpose=purpose)
                await tell(conn, task, now, [Draft(claimed)])

    async def release(self, task: TaskRef, sandbox_id: str) -> None:
        """Told once per sandbox."""
        now = self._clock.now()
        async with retryable(self._db) as conn:
            await locked(conn, task)
            await tell(conn, task, now, await released(conn, task, now, sandbox_id))

    async def closing(self, task: TaskRef) -> Closing:
        """Bump every fence, so that no attempt that still runs can write."""
        mine = (agents.c.tenant_id == task.tenant_id, agents.c.task_id == task.task_id)
        async with retryable(self._db) as conn:
            await conn.execute(select(agents.c.id).where(*mine).order_by(agents.c.id).with_for_update(key_share=True))
            row = await locked_anyhow(conn, task)
            if row.ended_at is not None:
                return Closing(True, (), ())
            bump = update(agents).where(*mine).values(fence=agents.c.fence + 1).returning(agents.c.id, agents.c.fence)
            fences = (await conn.execute(bump)).all()
            query = select(sandboxes.c.id, sandboxes.c.fence).where(
                sandboxes.c.tenant_id == task.tenant_id,
                sandboxes.c.task_id == task.task_id,
                sandboxes.c.ended_at.is_(None),
            )
            alive = (await conn.execute(query)).all()
        return Closing(False, tuple((a.id, a.fence) for a in fences), tuple((s.id, s.fence) for s in alive))

    async def finish(self, task: TaskRef, end: TaskEnd) -> TaskEnd:
        """Written once; a second time answers what was written."""
        async with retryable(self._db) as conn:
            return await write_end(conn, task, end, self._clock.now())


def _seconds_left(row: Row[Any], limits: Limits, now: datetime) -> float | None:
    deadline = row.deadline_at
    if deadline is None and limits.wall_s is not None:
        deadline = row.created_at + timedelta(seconds=limits.wall_s)
    return None if deadline is None else max(0.0, (deadline - now).total_seconds())


async def _blob(conn: AsyncConnection, task: TaskRef, file_id: str) -> BlobRef:
    file = await files.get(conn, task.tenant_id, file_id)
    return BlobRef(sha256=file.sha256, bytes=file.bytes)
