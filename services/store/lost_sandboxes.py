"""Lost sandboxes, and what they are made again from: `workflows.task_ports.SandboxStore` on PostgreSQL.

Which sandbox stands in a lost one's place is a row of its own, with the next fence; it is there before anything is
made, so whoever comes next goes on with it. Agents are locked first and the task last, as everywhere.
"""

from dataclasses import replace as but
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, exists, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.base import excerpt
from agents.contracts.errors import ErrorCode, ErrorInfo, Fenced, LonghaulError
from agents.contracts.event import SandboxLost, SandboxRestored, SandboxSnapshot
from agents.contracts.ids import Role
from agents.contracts.run import AgentRef, TaskRef
from agents.contracts.sandbox import SandboxInfo, SandboxState
from services.store import restored_notices, sandbox_rows
from services.store.database import Database
from services.store.events import Draft
from services.store.ledger_step import retryable
from services.store.orchestration import locked, tell
from services.store.sandbox_rows import EXPECTED, origin_id
from services.store.tables import agents, approvals, checkpoints, sandboxes, snapshots, tool_calls
from workflows.clock import Clock
from workflows.names import again_id, checkpoint_id, snapshot_id, snapshot_key, task_of
from workflows.records import Held
from workflows.task_ports import Box, Taken
from workflows.workspaces import DAMAGED

MOST = 50
"""So often a sandbox is made again; one that is lost more often has no host."""


class SqlSandboxes:
    """Implements `workflows.task_ports.SandboxStore`."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def current(self, task: TaskRef, sandbox_id: str) -> Box:
        """From the rows of its kin."""
        async with retryable(self._db) as conn:
            return await _current(conn, task, sandbox_id)

    async def replace(self, task: TaskRef, lost: str, why: ErrorInfo, held: Held | None) -> Box:
        """Only what is current can be lost; only what was ready is told of."""
        now = self._clock.now()
        async with retryable(self._db) as conn:
            ids = await _lock_agents(conn, task, await _current(conn, task, lost), held)
            await locked(conn, task)
            box = await _current(conn, task, lost)
            if box.id != lost or not (box.ready or why.code in DAMAGED):
                return box
            if not box.ready:
                await _condemn(conn, task, box, now)
            await _end(conn, task, box, now)
            following = await _following(conn, task, box, now)
            if box.ready:
                await _cut_off(conn, task, ids, held, now)
                await tell(conn, task, now, [Draft(SandboxLost(sandbox_id=box.id, detail=excerpt(why.detail)))])
            return following

    async def restored(self, task: TaskRef, box: Box, made: SandboxInfo, held: Held | None) -> Box:
        """Told once: by who turns the row from expected to ready."""
        now = self._clock.now()
        ready = (
            update(sandboxes)
            .where(sandboxes.c.tenant_id == task.tenant_id, sandboxes.c.id == box.id, sandboxes.c.state == EXPECTED)
            .values(state=SandboxState.READY.value, backend=made.backend)
            .returning(sandboxes.c.id)
        )
        async with retryable(self._db) as conn:
            ids = await _lock_agents(conn, task, box, None if box.purpose == "workspace" else held)
            snapshot = await _source(conn, task, box)
            notices = await restored_notices.write(conn, task, ids, box, snapshot, now)
            await locked(conn, task)
            if (await conn.execute(ready)).first() is not None:
                again = SandboxRestored(
                    sandbox_id=box.id,
                    lost_id=await _before(conn, task, box),
                    blob=box.source,
                    step=snapshot.step_id if snapshot else None,
                    round=snapshot.round if snapshot else 0,
                    turn=snapshot.turn if snapshot else 0,
                )
                await tell(conn, task, now, [Draft(again), *notices])
            return await _current(conn, task, box.id)

    async def keep(self, held: Held, turn: int, taken: Taken) -> None:
        """The one before it goes, unless it is a checkpoint."""
        now, task, place = self._clock.now(), task_of(held.ref), held.place
        async with retryable(self._db) as conn:
            await _still_mine(conn, held)
            await locked(conn, task)
            box = await _current(conn, task, taken.sandbox_id)
            if box.id != taken.sandbox_id:
                raise LonghaulError(ErrorCode.SANDBOX_LOST, "the sandbox was replaced")
            name = snapshot_id(snapshot_key(held.ref, turn))
            draft = await note(conn, held.ref, box, turn, taken, name, None)
            if draft is not None:
                before = (snapshots.c.tenant_id == task.tenant_id, snapshots.c.origin == box.origin)
                plain = (snapshots.c.checkpoint_id.is_(None), snapshots.c.id != name)
                await conn.execute(delete(snapshots).where(*before, *plain))
                await tell(conn, task, now, [but(draft, agent_id=place.agent_id, turn=turn or None)])

    async def keep_copy(self, task: TaskRef, copy: str, executor: AgentRef) -> None:
        """From the checkpoint's row."""
        query = select(checkpoints).where(
            checkpoints.c.tenant_id == task.tenant_id, checkpoints.c.id == checkpoint_id(executor)
        )
        async with retryable(self._db) as conn:
            row = (await conn.execute(query)).one_or_none()
            if row is not None:
                values = {
                    "id": snapshot_id(copy),
                    "tenant_id": task.tenant_id,
                    "task_id": task.task_id,
                    "origin": copy,
                    "checkpoint_id": row.id,
                    "step_id": row.step_id,
                    "round": row.round,
                    "taken_at": self._clock.now(),
                    "manifest_sha256": row.manifest_sha256,
                    "manifest_bytes": row.manifest_bytes,
                }
                await conn.execute(insert(snapshots).values(values).on_conflict_do_nothing())


async def note(
    conn: AsyncConnection, ref: AgentRef, box: Box, turn: int, taken: Taken, name: str, checkpoint: str | None
) -> Draft | None:
    """Keep a snapshot's row; what is to be told of it, None where it was there. The caller has locked the task."""
    manifest = taken.snapshot.manifest
    row: dict[str, Any] = {
        "id": name,
        "tenant_id": ref.tenant_id,
        "task_id": ref.place.task_id,
        "origin": box.origin,
        "checkpoint_id": checkpoint,
        "step_id": ref.place.step,
        "round": ref.round,
        "turn": turn,
        "taken_at": taken.taken_at,
        "manifest_sha256": manifest.sha256,
        "manifest_bytes": manifest.bytes,
    }
    new = insert(snapshots).values(row).on_conflict_do_nothing().returning(snapshots.c.id)
    if (await conn.execute(new)).first() is None:
        return None
    data = SandboxSnapshot(
        sandbox_id=taken.sandbox_id,
        blob=manifest,
        round=ref.round,
        turn=turn,
        added_bytes=taken.snapshot.added_bytes,
        duration_ms=taken.duration_ms,
    )
    return Draft(data, step_id=ref.place.step)


async def _current(conn: AsyncConnection, task: TaskRef, sandbox_id: str) -> Box:
    box = await sandbox_rows.current(conn, task.tenant_id, sandbox_id)
    if box is None:
        raise LonghaulError(ErrorCode.SANDBOX_NOT_FOUND, f"there is no sandbox {sandbox_id}")
    return box


async def _still_mine(conn: AsyncConnection, held: Held) -> None:
    mine = (agents.c.tenant_id == held.ref.tenant_id, agents.c.id == held.agent_id, agents.c.fence == held.fence)
    if (await conn.execute(select(agents.c.id).where(*mine).with_for_update(key_share=True))).first() is None:
        raise Fenced


async def _lock_agents(conn: AsyncConnection, task: TaskRef, box: Box, held: Held | None) -> list[str]:
    """Lock who works in a sandbox: a clean copy's reviewer, a workspace's planner and executors. Raises `Fenced`."""
    if box.purpose == "workspace":
        who: tuple[ColumnElement[bool], ...] = (
            agents.c.task_id == task.task_id,
            agents.c.epoch == task.epoch,
            agents.c.role != Role.REVIEWER.value,
        )
    else:
        who = (agents.c.id == (held.agent_id if held else None),)
    query = select(agents.c.id, agents.c.fence).where(agents.c.tenant_id == task.tenant_id, *who)
    found = (await conn.execute(query.order_by(agents.c.id).with_for_update(key_share=True))).all()
    if held is not None and (held.agent_id, held.fence) not in {(row.id, row.fence) for row in found}:
        raise Fenced
    return [row.id for row in found]


async def _cut_off(conn: AsyncConnection, task: TaskRef, ids: list[str], held: Held | None, at: datetime) -> None:
    """Fence out who works in a lost sandbox. What is known of no call that was under way in it is how it ended."""
    mine = held.agent_id if held else ""
    others = (agents.c.tenant_id == task.tenant_id, agents.c.id.in_(ids), agents.c.id != mine)
    await conn.execute(update(agents).where(*others).values(fence=agents.c.fence + 1))
    undecided = exists().where(approvals.c.call_key == tool_calls.c.key, approvals.c.state == "pending")
    under_way = (
        tool_calls.c.tenant_id == task.tenant_id,
        tool_calls.c.agent_id.in_(ids),
        tool_calls.c.ended_at.is_(None),
        ~undecided,
    )
    await conn.execute(update(tool_calls).where(*under_way).values(lost_at=at))


async def _end(conn: AsyncConnection, task: TaskRef, box: Box, at: datetime) -> None:
    mine = (sandboxes.c.tenant_id == task.tenant_id, sandboxes.c.id == box.id)
    await conn.execute(update(sandboxes).where(*mine).values(state=SandboxState.LOST.value, ended_at=at))


async def _following(conn: AsyncConnection, task: TaskRef, box: Box, at: datetime) -> Box:
    """The row of the next one, from the last sound snapshot."""
    if box.fence > MOST:
        raise LonghaulError(ErrorCode.SANDBOX_LOST, f"the sandbox was lost {box.fence} times")
    kept = select(snapshots).where(snapshots.c.tenant_id == task.tenant_id, snapshots.c.origin == box.origin)
    found = (await conn.execute(kept.order_by(snapshots.c.n.desc()))).all()
    sound = next((row for row in found if row.damaged_at is None), None)
    if found and sound is None and box.purpose == "workspace":
        raise LonghaulError(
            ErrorCode.SNAPSHOT_FAILED,
            "the workspace was lost, and none of its snapshots can be restored; look after the object store",
        )
    row = {
        "id": again_id(box.origin, box.fence + 1),
        "tenant_id": task.tenant_id,
        "task_id": task.task_id,
        "purpose": box.purpose,
        "state": EXPECTED,
        "fence": box.fence + 1,
        "backend": "",
        "origin": box.origin,
        "snapshot_id": sound.id if sound else None,
        "created_at": at,
    }
    await conn.execute(insert(sandboxes).values(row))
    return await _current(conn, task, box.origin)


async def _condemn(conn: AsyncConnection, task: TaskRef, box: Box, at: datetime) -> None:
    """The snapshot that a sandbox could not be made from is damaged."""
    mine = select(sandboxes.c.snapshot_id).where(sandboxes.c.tenant_id == task.tenant_id, sandboxes.c.id == box.id)
    which = (snapshots.c.tenant_id == task.tenant_id, snapshots.c.id == mine.scalar_subquery())
    await conn.execute(update(snapshots).where(*which).values(damaged_at=at))


async def _before(conn: AsyncConnection, task: TaskRef, box: Box) -> str:
    """The one that was lost. Between it and this there may be some that could not be made."""
    kin = (sandboxes.c.tenant_id == task.tenant_id, origin_id == box.origin, sandboxes.c.fence < box.fence)
    made = select(sandboxes.c.id).where(*kin, sandboxes.c.backend != "").order_by(sandboxes.c.fence.desc()).limit(1)
    return (await conn.execute(made)).scalar_one_or_none() or box.origin


async def _source(conn: AsyncConnection, task: TaskRef, box: Box) -> Row[Any] | None:
    query = (
        select(snapshots)
        .join(sandboxes, (sandboxes.c.snapshot_id == snapshots.c.id) & (sandboxes.c.tenant_id == snapshots.c.tenant_id))
        .where(sandboxes.c.tenant_id == task.tenant_id, sandboxes.c.id == box.id)
    )
    return (await conn.execute(query)).one_or_none()
