"""The activities of a review: the clean copy, the task's own checks, the verdict."""

from temporalio import activity

from agents.contracts.base import read_stored
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.run import AgentRef, ReviewEnd, ReviewStart, TaskRef
from agents.contracts.sandbox import ExecRequest, ExecStatus, SandboxSpec
from agents.contracts.task import CheckResult
from agents.contracts.trajectory import StepReport
from agents.tools.finish_step import FinishStep
from agents.tools.submit_review import SubmitReview
from workflows.activities.doing import Elsewhere, doing
from workflows.activities.task import findings_of
from workflows.briefs import LISTING_MAX, Scene, write_brief
from workflows.names import SANDBOX_FENCE, checkpoint_key, clean_copy_id, exec_id, harness, task_of, workspace_id
from workflows.ports import Runner
from workflows.task_ports import Material, RoundStore, StepStore, TaskStore

CHECK_TIMEOUT_S = 1_800.0
CHECK_TAIL_CHARS = 2_000
"""What a reviewer sees of a check's output: its end."""


class ReviewActivities:
    """Reviews happen in a fresh sandbox that holds the workspace's files of this moment."""

    def __init__(
        self, tasks: TaskStore, rounds: RoundStore, steps: StepStore, runner: Runner, elsewhere: Elsewhere
    ) -> None:
        self._tasks = tasks
        self._rounds = rounds
        self._steps = steps
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
        sandbox = await self._copy(review)
        checks = await self._checks(review, sandbox, material) if review.final else ()
        listing, total = await self._runner.list_files(sandbox, LISTING_MAX)
        before = ref.model_copy(update={"round": ref.round - 1}) if ref.round > 1 else None
        findings = tuple(await findings_of(self._rounds, before))
        scene = Scene(sandbox, listing, total, checks, findings)
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
        task = task_of(executor)
        try:
            workspace, key = workspace_id(task), checkpoint_key(executor)
            kept = await self._runner.snapshot(workspace, key, harness(task), state=True)
        except LonghaulError as error:
            if error.code is not ErrorCode.SNAPSHOT_FAILED:
                raise
            activity.logger.warning("there is no checkpoint of %s: %s", executor.place.path, error.detail)
            return
        await self._steps.keep_checkpoint(executor, kept)

    async def _copy(self, review: ReviewStart) -> str:
        task, name = task_of(review.reviewer), clean_copy_id(review.reviewer)
        inputs = await self._tasks.inputs(task)
        spec = SandboxSpec(
            id=name,
            tenant_id=task.tenant_id,
            task_id=task.task_id,
            fence=SANDBOX_FENCE,
            limits=inputs.sandbox,
            network=inputs.network,
            template=inputs.template,
            copy_of=workspace_id(task),
        )
        await self._tasks.expect(task, name, "clean_copy")
        await self._tasks.claim(task, await self._runner.create(spec))
        return name

    async def _checks(self, review: ReviewStart, sandbox: str, material: Material) -> tuple[CheckResult, ...]:
        return tuple([await self._check(review, sandbox, n, command) for n, command in enumerate(material.checks)])

    async def _check(self, review: ReviewStart, sandbox: str, position: int, command: str) -> CheckResult:
        key = f"{review.reviewer.place.path}/{review.reviewer.round}/check/{position}"
        name = exec_id(key)
        await self._steps.start_check(review, name, command, position)
        request = ExecRequest(
            exec_id=name,
            key=key,
            owner=harness(task_of(review.reviewer)),
            command=command,
            timeout_s=CHECK_TIMEOUT_S,
        )
        status = await self._runner.exec(sandbox, request)
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
        await self._runner.destroy(sandbox)
        await self._tasks.release(task, sandbox)


def _judge(command: str, status: ExecStatus) -> CheckResult:
    """Only an exit with 0 passes: a timeout, a signal or an unknown end does not."""
    return CheckResult(
        command=command,
        exit_code=status.exit_code,
        passed=status.exit_code == 0 and status.reason == "exited",
        output=status.output[-CHECK_TAIL_CHARS:],
        duration_ms=status.duration_ms,
    )
