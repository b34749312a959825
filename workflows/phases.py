"""The phases of a task: plan, steps (side by side where they may), reviews, the final review, replanning."""

import asyncio

from temporalio import workflow
from temporalio.workflow import ActivityConfig

with workflow.unsafe.imports_passed_through():
    from agents.contracts.base import Wire
    from agents.contracts.errors import ErrorInfo
    from agents.contracts.ids import FINAL_STEP, PLAN_STEP, Place, Role
    from agents.contracts.run import (
        AgentOutcome,
        AgentRef,
        BurstReason,
        PlanRecord,
        PlanShape,
        ReviewEnd,
        ReviewStart,
        RoundStart,
        StepChange,
        TaskCursors,
        TaskEnd,
        TaskRef,
        TaskStart,
    )
    from agents.contracts.task import StopReason
    from agents.policy.parallel import ready, topological
    from workflows import options
    from workflows.names import child_id

STOP_REASONS = {
    BurstReason.GAVE_UP: StopReason.GAVE_UP,
    BurstReason.CANCELLED: StopReason.CANCELLED,
    BurstReason.BUDGET: StopReason.BUDGET,
    BurstReason.NO_PROGRESS: StopReason.NO_PROGRESS,
}


class TaskOver(Exception):
    """The task cannot go on: how it ends."""

    def __init__(self, end: TaskEnd) -> None:
        super().__init__(end.stop_reason.value)
        self.end = end


class HistoryFull(Exception):
    """The workflow's history is long and nothing runs: the task goes on from these cursors in a new one."""

    def __init__(self, cursors: TaskCursors) -> None:
        super().__init__("continue as new")
        self.cursors = cursors


class Phases:
    """One task's run. Everything that happens is an activity or a child; this only decides what comes next."""

    def __init__(self, task: TaskRef, start: TaskStart, cursors: TaskCursors) -> None:
        self._task = task
        self._limits = start.limits
        self._stopping = False
        self._at = cursors
        self._done = set(cursors.done)
        self._rounds = dict(cursors.rounds)
        """The executor round that each step has reached, by step id."""

    async def run(self) -> TaskEnd:
        """The end, once the whole task is approved.

        Raises:
            TaskOver: it ended otherwise.
            HistoryFull: it goes on in a new history.
        """
        if self._at == TaskCursors():
            await self._do("prepare_workspace", self._task, options.LONG)
        while self._at.revision <= self._limits.review_rounds:
            plan = await self._plan()
            self._done &= {step.id for step in plan.steps}  # what a plan dropped and a later one asks for is done anew
            # an only step's review is the final one, unless an earlier revision finished the step beside others
            reviewed = len(plan.steps) == 1 and plan.steps[0].id not in self._done
            findings = await self._steps(plan) or (None if reviewed else await self._final(plan))
            if findings is None:
                return TaskEnd(stop_reason=StopReason.COMPLETED)
            self._at = TaskCursors(revision=plan.revision + 1, findings=findings)
        raise TaskOver(TaskEnd(stop_reason=StopReason.REJECTED))

    def stop(self) -> None:
        """Schedule nothing more. Goes with a cancel, which is lost on an activity or a child that ends by itself before
        the request reaches it: its result comes as if nobody had asked."""
        self._stopping = True

    async def _plan(self) -> PlanShape:
        """The plan of this revision; one that was recorded in an earlier history is only read."""
        revision = self._at.revision
        planner = self._agent(Role.PLANNER, PLAN_STEP, 1, revision)
        if not self._at.planned:
            self._leave_a_full_history()
            await self._do("open_round", RoundStart(agent=planner, findings_of=self._at.findings))
            _must_finish(await self._child(planner))
        record = PlanRecord(planner=planner, revision=revision)
        plan: PlanShape = await workflow.execute_activity("record_plan", record, result_type=PlanShape, **options.QUICK)
        self._go_on()
        self._at = self._at.model_copy(update={"planned": True})
        return plan

    def _leave_a_full_history(self) -> None:
        """Where nothing runs: go on in a new history if this one has become long."""
        if workflow.info().is_continue_as_new_suggested():
            reached = {"done": tuple(sorted(self._done)), "rounds": dict(self._rounds)}
            raise HistoryFull(self._at.model_copy(update=reached))

    async def _steps(self, plan: PlanShape) -> AgentRef | None:
        """Run the steps that are not done yet. A review that asks to replan is returned, once nothing runs any more."""
        running: dict[str, asyncio.Task[AgentRef | None]] = {}
        replan: AgentRef | None = None
        only = len(plan.steps) == 1
        try:
            while True:
                # a full history starts nothing more, so that soon nothing runs and it can be left
                if replan is None and not (running and workflow.info().is_continue_as_new_suggested()):
                    wanted = ready(plan, self._done, set(running), self._limits.parallel)
                    if wanted:
                        self._leave_a_full_history()
                    for step in wanted:
                        running[step] = asyncio.create_task(self._step(plan.revision, step, final=only))
                if not running:
                    return replan
                await workflow.wait(list(running.values()), return_when=asyncio.FIRST_COMPLETED)
                for step in [s for s, task in running.items() if task.done()]:
                    asked = running.pop(step).result()
                    replan = replan or asked
                    if asked is None:
                        self._done.add(step)
        finally:
            await self._stop(list(running.values()))

    async def _step(self, revision: int, step: str, *, final: bool) -> AgentRef | None:
        """Executor and reviewer in turns until it is approved (None) or the plan has to change (that review)."""
        findings: AgentRef | None = None
        failed = False
        for round_no in range(1, self._limits.review_rounds + 1):
            executor = self._agent(Role.EXECUTOR, step, revision, round_no)
            await self._execute(executor, findings)
            reviewer = self._agent(Role.REVIEWER, step, revision, round_no)
            review = await self._review(ReviewStart(reviewer=reviewer, executor=executor, final=final))
            if review.verdict == "approve":
                return None
            if review.verdict == "replan":
                return reviewer
            findings, failed = reviewer, review.checks_failed
        raise await self._step_over(executor, StopReason.FAILED_CHECKS if failed else StopReason.REJECTED)

    async def _final(self, plan: PlanShape) -> AgentRef | None:
        """Review the whole; findings go to the executor of the last step."""
        last = topological(plan)[-1]
        executor: AgentRef | None = None
        failed = False
        for round_no in range(1, self._limits.review_rounds + 1):
            reviewer = self._agent(Role.REVIEWER, FINAL_STEP, plan.revision, round_no)
            review = await self._review(ReviewStart(reviewer=reviewer, executor=executor, final=True))
            if review.verdict == "approve":
                return None
            if review.verdict == "replan":
                return reviewer
            failed = review.checks_failed
            if round_no < self._limits.review_rounds:
                executor = self._agent(Role.EXECUTOR, last, plan.revision, self._rounds[last] + 1)
                await self._execute(executor, reviewer)
        raise TaskOver(TaskEnd(stop_reason=StopReason.FAILED_CHECKS if failed else StopReason.REJECTED))

    async def _execute(self, executor: AgentRef, findings: AgentRef | None) -> None:
        self._rounds[executor.place.step] = executor.round
        await self._do("start_step", StepChange(executor=executor))
        await self._do("open_round", RoundStart(agent=executor, findings_of=findings))
        outcome = await self._child(executor)
        if outcome.reason is not BurstReason.FINISHED:
            end = _end_of(outcome)
            raise await self._step_over(executor, end.stop_reason, end.error)

    async def _step_over(self, executor: AgentRef, reason: StopReason, error: ErrorInfo | None = None) -> TaskOver:
        end = TaskEnd(stop_reason=reason, error=error)
        if reason is not StopReason.CANCELLED:
            await self._do("fail_step", StepChange(executor=executor, end=end))
        return TaskOver(end)

    async def _review(self, review: ReviewStart) -> ReviewEnd:
        await self._do("prepare_review", review, options.LONG)
        _must_finish(await self._child(review.reviewer))
        end: ReviewEnd = await workflow.execute_activity("apply_review", review, result_type=ReviewEnd, **options.QUICK)
        self._go_on()
        return end

    async def _child(self, ref: AgentRef) -> AgentOutcome:
        self._go_on()
        outcome: AgentOutcome = await workflow.execute_child_workflow(
            "AgentWorkflow",
            ref,
            id=child_id(ref),
            result_type=AgentOutcome,
            task_queue=options.WORKFLOW_QUEUE,
            task_timeout=options.WORKFLOW_TASK_TIMEOUT,
            parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        self._go_on()
        return outcome

    async def _stop(self, steps: "list[asyncio.Task[AgentRef | None]]") -> None:
        """Cancel what still runs and wait for it; what it raises was decided elsewhere."""
        if steps:
            self.stop()
        for step in steps:
            step.cancel()
        await asyncio.gather(*steps, return_exceptions=True)

    async def _do(self, activity: str, argument: Wire, config: ActivityConfig = options.QUICK) -> None:
        """An activity that answers nothing."""
        self._go_on()
        await workflow.execute_activity(activity, argument, **config)
        self._go_on()

    def _go_on(self) -> None:
        if self._stopping:
            raise asyncio.CancelledError

    def _agent(self, role: Role, step: str, revision: int, round_no: int) -> AgentRef:
        place = Place(task_id=self._task.task_id, epoch=self._task.epoch, role=role, revision=revision, step=step)
        return AgentRef(tenant_id=self._task.tenant_id, place=place, round=round_no)


def _end_of(outcome: AgentOutcome) -> TaskEnd:
    return TaskEnd(stop_reason=STOP_REASONS.get(outcome.reason, StopReason.ERROR), error=outcome.error)


def _must_finish(outcome: AgentOutcome) -> None:
    if outcome.reason is not BurstReason.FINISHED:
        raise TaskOver(_end_of(outcome))
