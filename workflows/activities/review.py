"""The activities of a review: the clean copy, the task's own checks, the verdict."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from temporalio import activity

from agents.contracts.base import read_stored
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.run import AgentRef, ReviewEnd, ReviewStart, TaskRef
from agents.contracts.sandbox import ExecRequest, ExecStatus, FileEntry
from agents.contracts.task import CheckResult
from agents.contracts.trajectory import StepReport
from agents.tools.finish_step import FinishStep
from agents.tools.submit_review import SubmitReview
from workflows.activities.doing import Elsewhere, doing
from workflows.activities.task import findings_of
from workflows.briefs import LISTING_MAX, Scene, write_brief
from workflows.names import clean_copy_id, exec_id, harness, task_of
from workflows.ports import Runner
from workflows.task_ports import Box, Material, RoundStore, StepStore, TaskStore
from workflows.workspaces import Workspaces

T = TypeVar("T")

CHECK_TIMEOUT_S = 1_800.0
CHECK_TAIL_CHARS = 2_000
"""What a reviewer sees of a check's output: its end."""


@dataclass(frozen=True)
class Stores:
    """The rows that a review is about."""

    tasks: TaskStore
    rounds: RoundStore
    steps: StepStore


class ReviewActivities:
    """Reviews happen in a fresh sandbox that holds the workspace's files of this moment."""

    def __init__(self, stores: Stores, workspaces: Workspaces, runner: Runner, elsewhere: Elsewhere) -> None:
        self._tasks = stores.tasks
        self._rounds = stores.rounds
        self._steps = stores.steps
        self._workspaces = workspaces
        self._runner = runner
        self._elsewhere = elsewhere

    @activity.defn(name="prepare_review")
    async def prepare_review(self, review: ReviewStart) -> None:
        """Keep and copy the workspace, run the checks where this is the final review, open the reviewer's round."""
        await doing(self._elsewhere, self._prepare(review))

    @activity.defn(name="apply_review")
    async def apply_review(self, review: ReviewStart) -> ReviewEnd:
        """Keep the verdict and give the copy back."""
        return await doing(self._elsewhere, self._apply(review))

    async def _prepare(self, review: ReviewStart) -> None:
        ref = review.reviewer
        material = await self._rounds.material(ref)
        await self._steps.start_review(review, await self._report(review, material))
        if review.executor is not None:
            await self._checkpoint(review.executor)
        await self._copy(review)
        checks = await self._checks(review, material) if review.final else ()
        box, (listing, total) = await self._in_copy(review, self._list)
        before = ref.model_copy(update={"round": ref.round - 1}) if ref.round > 1 else None
        findings = tuple(await findings_of(self._rounds, before))
        scene = Scene(box.id, box.fence, listing, total, checks, findings)
        brief = write_brief(ref, await self._rounds.material(ref), scene)
        await self._rounds.open_round(ref, brief, [])

    async def _report(self, review: ReviewStart, material: Material) -> StepReport | None:
        """What the executor said when it handed the step in."""
        if review.executor is None or material.plan is None:
            return None
        step = review.executor.place.step
        said = read_stored(FinishStep, await self._rounds.outcome(review.executor))
        title = next((s.title for s in material.plan.plan.steps if s.id == step), step)
        return StepReport(
            step_id=step,
            title=title,
            summary=said.summary,
            evidence=tuple(said.evidence),
            artifacts=tuple(said.artifacts),
        )

    async def _checkpoint(self, executor: AgentRef) -> None:
        """Keep the workspace as the executor left it. One that cannot be kept is no reason to stop the work on it."""
        try:
            kept = await self._workspaces.checkpoint(executor)
        except LonghaulError as error:
            if error.code is not ErrorCode.SNAPSHOT_FAILED:
                raise
            activity.logger.warning("there is no checkpoint of %s: %s", executor.place.path, error.detail)
            return
        await self._steps.keep_checkpoint(executor, kept)

    async def _copy(self, review: ReviewStart) -> None:
        """Make the clean copy, unless it was made and another stands in its place now."""
        task, name = task_of(review.reviewer), clean_copy_id(review.reviewer)
        await self._tasks.expect(task, name, "clean_copy")
        box = await self._workspaces.current(task, name)
        if box.id != name:
            return
        await self._tasks.claim(task, await self._workspaces.make(task, box))
        if review.executor is not None:
            await self._workspaces.keep_copy(name, review.executor)

    async def _in_copy(self, review: ReviewStart, act: Callable[[Box], Awaitable[T]]) -> T:
        return await self._workspaces.on(task_of(review.reviewer), clean_copy_id(review.reviewer), act)

    async def _list(self, box: Box) -> tuple[Box, tuple[list[FileEntry], int]]:
        return box, await self._runner.list_files(box.id, LISTING_MAX)

    async def _checks(self, review: ReviewStart, material: Material) -> tuple[CheckResult, ...]:
        return tuple([await self._check(review, n, command) for n, command in enumerate(material.checks)])

    async def _check(self, review: ReviewStart, position: int, command: str) -> CheckResult:
        key = f"{review.reviewer.place.path}/{review.reviewer.round}/check/{position}"
        name = exec_id(key)
        await self._steps.start_check(review, name, command, position)
        task = task_of(review.reviewer)

        async def run(box: Box) -> ExecStatus:
            owner = harness(task, box.fence)
            request = ExecRequest(exec_id=name, key=key, owner=owner, command=command, timeout_s=CHECK_TIMEOUT_S)
            return await self._runner.exec(box.id, request)

        status = await self._in_copy(review, run)
        result = _judge(command, status)
        await self._steps.keep_check(review, position, status, result)
        return result

    async def _apply(self, review: ReviewStart) -> ReviewEnd:
        said = read_stored(SubmitReview, await self._rounds.outcome(review.reviewer))
        await self._steps.end_review(review, said.verdict, said.findings, said.evidence)
        await self._give_back(task_of(review.reviewer), clean_copy_id(review.reviewer))
        failed = review.final and await self._steps.checks_failed(review)
        return ReviewEnd(verdict=said.verdict, checks_failed=failed)

    async def _give_back(self, task: TaskRef, sandbox: str) -> None:
        box = await self._workspaces.current(task, sandbox)
        await self._runner.destroy(box.id)
        await self._tasks.release(task, box.id)


def _judge(command: str, status: ExecStatus) -> CheckResult:
    """Only an exit with 0 passes: a timeout, a signal or an unknown end does not."""
    return CheckResult(
        command=command,
        exit_code=status.exit_code,
        passed=status.exit_code == 0 and status.reason == "exited",
        output=status.output[-CHECK_TAIL_CHARS:],
        duration_ms=status.duration_ms,
    )
