"""Steps, their reviews and the task's checks: `workflows.task_ports.StepStore` on PostgreSQL."""

from collections.abc import Sequence
from typing import Literal, cast

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.base import excerpt, read_stored
from agents.contracts.errors import ErrorCode, ErrorInfo, LonghaulError
from agents.contracts.event import (
    CheckpointCreated,
    EventData,
    ExecExited,
    ExecLost,
    ExecStarted,
    ReviewStarted,
    ReviewSubmitted,
    StepCompleted,
    StepFailed,
    StepStarted,
    denials,
)
from agents.contracts.run import AgentRef, ReviewStart
from agents.contracts.sandbox import ExecState, ExecStatus
from agents.contracts.task import CheckResult, StopReason, TaskStatus
from agents.contracts.trajectory import StepReport
from services.store import checkpoints, lost_sandboxes, sandbox_rows
from services.store.database import Database
from services.store.events import Draft
from services.store.ledger_step import retryable
from services.store.orchestration import first_time, locked, rest, set_status, tell
from services.store.tables import checks, steps, turns
from workflows.clock import Clock
from workflows.names import clean_copy_id, snapshot_id, task_of
from workflows.task_ports import Taken


class SqlSteps:
    """Implements `workflows.task_ports.StepStore`."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def start_step(self, executor: AgentRef) -> None:
        """Told once per round."""
        now, task = self._clock.now(), task_of(executor)
        async with retryable(self._db) as conn:
            row = await locked(conn, task)
            begun = (
                update(steps)
                .where(*_step(executor), steps.c.round < executor.round)
                .values(state="running", round=executor.round)
                .returning(steps.c.title)
            )
            title = (await conn.execute(begun)).scalar_one_or_none()
            if title is not None:
                status = await set_status(conn, task, row, TaskStatus.RUNNING)
                started = StepStarted(title=title, round=executor.round)
                await tell(conn, task, now, [*status, Draft(started, step_id=executor.place.step)])

    async def fail_step(self, executor: AgentRef, reason: StopReason, error: ErrorInfo | None) -> None:
        """Told once."""
        now, task = self._clock.now(), task_of(executor)
        async with retryable(self._db) as conn:
            await locked(conn, task)
            failed = (
                update(steps)
                .where(*_step(executor), steps.c.state != "failed")
                .values(state="failed")
                .returning(steps.c.step_id)
            )
            if (await conn.execute(failed)).first() is not None:
                data = StepFailed(round=executor.round, stop_reason=reason, error=error)
                await tell(conn, task, now, [Draft(data, step_id=executor.place.step)])

    async def start_review(self, review: ReviewStart, report: StepReport | None) -> None:
        """Told once per review."""
        now, task = self._clock.now(), task_of(review.reviewer)
        async with retryable(self._db) as conn:
            row = await locked(conn, task)
            if not await first_time(conn, task, f"review/{_name(review)}", now):
                return
            if review.executor is not None and report is not None:
                kept = update(steps).where(*_step(review.executor))
                await conn.execute(kept.values(state="reviewing", report=report.model_dump(mode="json")))
            status = await set_status(conn, task, row, TaskStatus.REVIEWING) if review.final else []
            await tell(conn, task, now, [*status, _of(review, ReviewStarted(round=review.reviewer.round))])

    async def keep_checkpoint(self, executor: AgentRef, taken: Taken) -> None:
        """Kept and told once per round; of a sandbox that was replaced meanwhile it is to be taken again."""
        now, task = self._clock.now(), task_of(executor)
        async with retryable(self._db) as conn:
            turn = await _last_turn(conn, executor)
            await locked(conn, task)
            box = await sandbox_rows.current(conn, task.tenant_id, taken.sandbox_id)
            if box is None or box.id != taken.sandbox_id:
                raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, "the workspace was lost while it was kept")
            kept = await checkpoints.add(conn, executor, box.id, taken.snapshot, now)
            if kept is not None:
                told = await lost_sandboxes.note(conn, executor, box, turn, taken, snapshot_id(kept.id), kept.id)
                data = CheckpointCreated(checkpoint_id=kept.id, blob=kept.manifest)
                await tell(conn, task, now, [*([told] if told else []), Draft(data, step_id=kept.step_id)])

    async def start_check(self, review: ReviewStart, exec_id: str, command: str, position: int) -> None:
        """Told once per check."""
        data = ExecStarted(exec_id=exec_id, command=excerpt(command), purpose="check")
        now, task = self._clock.now(), task_of(review.reviewer)
        async with retryable(self._db) as conn:
            await locked(conn, task)
            if await first_time(conn, task, f"check/{_name(review)}/{position}", now):
                await tell(conn, task, now, [_of(review, data)])

    async def keep_check(self, review: ReviewStart, position: int, status: ExecStatus, result: CheckResult) -> None:
        """Kept and told once per check."""
        now, task = self._clock.now(), task_of(review.reviewer)
        row = {
            "tenant_id": task.tenant_id,
            "task_id": task.task_id,
            "epoch": task.epoch,
            "revision": review.reviewer.place.revision,
            "round": review.reviewer.round,
            "position": position,
            "result": result.model_dump(mode="json"),
        }
        async with retryable(self._db) as conn:
            await locked(conn, task)
            kept = insert(checks).values(row).on_conflict_do_nothing().returning(checks.c.position)
            if (await conn.execute(kept)).first() is not None:
                refused = denials(clean_copy_id(review.reviewer), status)
                await tell(conn, task, now, [_of(review, data) for data in (*refused, _exited(status))])

    async def checks_failed(self, review: ReviewStart) -> bool:
        """From the rows of this review."""
        place = review.reviewer.place
        query = select(checks.c.result).where(
            checks.c.tenant_id == review.reviewer.tenant_id,
            checks.c.task_id == place.task_id,
            checks.c.epoch == place.epoch,
            checks.c.revision == place.revision,
            checks.c.round == review.reviewer.round,
        )
        async with retryable(self._db) as conn:
            results = (await conn.execute(query)).scalars().all()
        return not all(read_stored(CheckResult, result).passed for result in results)

    async def end_review(
        self, review: ReviewStart, verdict: str, findings: Sequence[str], evidence: Sequence[str]
    ) -> None:
        """Told once per review."""
        now, task = self._clock.now(), task_of(review.reviewer)
        submitted = ReviewSubmitted(
            round=review.reviewer.round,
            verdict=cast("Literal['approve', 'revise', 'replan']", verdict),
            findings=tuple(excerpt(finding) for finding in findings),
            evidence=tuple(excerpt(piece) for piece in evidence),
        )
        async with retryable(self._db) as conn:
            row = await locked(conn, task)
            if not await first_time(conn, task, f"verdict/{_name(review)}", now):
                return
            drafts = [_of(review, submitted)]
            if verdict == "approve" and review.executor is not None:
                drafts += await _complete(conn, review.executor) + await rest(conn, task, row)
            await tell(conn, task, now, drafts)


async def _complete(conn: AsyncConnection, executor: AgentRef) -> list[Draft]:
    done = update(steps).where(*_step(executor)).values(state="completed").returning(steps.c.report)
    report = read_stored(StepReport, (await conn.execute(done)).scalar_one())
    data = StepCompleted(round=executor.round, summary=excerpt(report.summary))
    return [Draft(data, step_id=executor.place.step)]


async def _last_turn(conn: AsyncConnection, executor: AgentRef) -> int:
    of_round = (turns.c.agent_id == executor.place.agent_id) & (turns.c.round == executor.round)
    query = select(func.coalesce(func.max(turns.c.turn), 0)).where(turns.c.tenant_id == executor.tenant_id, of_round)
    last: int = (await conn.execute(query)).scalar_one()
    return last


def _step(executor: AgentRef) -> tuple[ColumnElement[bool], ...]:
    place = executor.place
    return (
        steps.c.tenant_id == executor.tenant_id,
        steps.c.task_id == place.task_id,
        steps.c.epoch == place.epoch,
        steps.c.revision == place.revision,
        steps.c.step_id == place.step,
    )


def _name(review: ReviewStart) -> str:
    return f"{review.reviewer.place.path}/{review.reviewer.round}"


def _of(review: ReviewStart, data: EventData) -> Draft:
    place = review.reviewer.place
    return Draft(data, agent_id=place.agent_id, step_id=place.step)


def _exited(status: ExecStatus) -> EventData:
    if status.state is ExecState.LOST:
        return ExecLost(exec_id=status.exec_id)
    return ExecExited(
        exec_id=status.exec_id,
        exit_code=status.exit_code,
        reason=status.reason or "exited",
        output=excerpt(status.output),
        duration_ms=status.duration_ms,
        purpose="check",
    )
