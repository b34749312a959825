"""The activities of a task's beginning and end, its rounds and steps."""

from temporalio import activity

from agents.contracts.base import read_stored
from agents.contracts.errors import LonghaulError
from agents.contracts.plan import Plan
from agents.contracts.run import (
    AgentRef,
    Controls,
    Finish,
    PlanRecord,
    PlanShape,
    RoundStart,
    StepChange,
    TaskEnd,
    TaskRef,
    TaskStart,
)
from agents.tools.submit_review import SubmitReview
from workflows.activities.doing import Elsewhere, doing
from workflows.briefs import LISTING_MAX, Scene, write_brief
from workflows.names import harness, task_of, workspace_id
from workflows.ports import Live, Runner
from workflows.task_ports import Box, Closing, RoundStore, StepStore, TaskStore
from workflows.workspaces import GONE, Workspaces


class TaskActivities:
    """Begin, fill the workspace, finish."""

    def __init__(
        self, tasks: TaskStore, workspaces: Workspaces, runner: Runner, live: Live, elsewhere: Elsewhere
    ) -> None:
        self._tasks = tasks
        self._workspaces = workspaces
        self._runner = runner
        self._live = live
        self._elsewhere = elsewhere

    @activity.defn(name="begin_task")
    async def begin_task(self, task: TaskRef) -> TaskStart:
        """Work begins."""
        return await doing(self._elsewhere, self._tasks.begin(task))

    @activity.defn(name="read_controls")
    async def read_controls(self, task: TaskRef) -> Controls:
        """What a person has asked."""
        return await doing(self._elsewhere, self._tasks.controls(task))

    @activity.defn(name="prepare_workspace")
    async def prepare_workspace(self, task: TaskRef) -> None:
        """Make the sandbox and put the repository and files in."""
        await doing(self._elsewhere, self._prepare(task))

    @activity.defn(name="finish_task")
    async def finish_task(self, finish: Finish) -> TaskEnd:
        """Stop all that is left and end the task. Tried for ever: a task that says nothing of its end helps nobody."""
        return await doing(self._elsewhere, self._finish(finish), gives_up=False)

    async def _prepare(self, task: TaskRef) -> None:
        name = workspace_id(task)
        await self._tasks.expect(task, name, "workspace")
        made = await self._workspaces.make(task, await self._workspaces.current(task, name))
        await self._tasks.claim(task, made)

    async def _finish(self, finish: Finish) -> TaskEnd:
        closing = await self._tasks.closing(finish.task)
        if not closing.ended:
            await quiet(self._runner, finish.task, closing)
        end = await self._tasks.finish(finish.task, finish.end)
        await self._live.poke()  # its place is free for another task
        return end


async def quiet(runner: Runner, task: TaskRef, closing: Closing) -> None:
    """Lock every agent out of every sandbox, then end what runs there, then delete it."""
    owner = harness(task)
    for sandbox_id, sandbox_fence in closing.sandboxes:
        try:
            for agent_id, fence in closing.agents:
                mark = owner.model_copy(
                    update={"agent_id": agent_id, "agent_fence": fence, "sandbox_fence": sandbox_fence}
                )
                await runner.announce(sandbox_id, mark)
            await runner.kill_all(sandbox_id, owner.model_copy(update={"sandbox_fence": sandbox_fence}))
        except LonghaulError as error:
            if error.code not in GONE:
                raise
        await runner.destroy(sandbox_id)


class RoundActivities:
    """Rounds of planners and executors, the plan, the steps."""

    def __init__(
        self, rounds: RoundStore, steps: StepStore, workspaces: Workspaces, runner: Runner, elsewhere: Elsewhere
    ) -> None:
        self._rounds = rounds
        self._steps = steps
        self._workspaces = workspaces
        self._runner = runner
        self._elsewhere = elsewhere

    @activity.defn(name="open_round")
    async def open_round(self, start: RoundStart) -> None:
        """Open a round; the findings of the review that asked for it are mailed."""
        await doing(self._elsewhere, self._open(start))

    @activity.defn(name="record_plan")
    async def record_plan(self, record: PlanRecord) -> PlanShape:
        """Keep the plan that the planner handed in."""
        return await doing(self._elsewhere, self._record(record))

    @activity.defn(name="start_step")
    async def start_step(self, change: StepChange) -> None:
        """A round of a step begins."""
        await doing(self._elsewhere, self._steps.start_step(change.executor))

    @activity.defn(name="fail_step")
    async def fail_step(self, change: StepChange) -> None:
        """A step ends without being done."""
        if change.end is not None:
            end = change.end
            await doing(self._elsewhere, self._steps.fail_step(change.executor, end.stop_reason, end.error))

    async def _open(self, start: RoundStart) -> None:
        ref = start.agent
        scene = await self._workspaces.on(task_of(ref), workspace_id(task_of(ref)), self._scene)
        brief = write_brief(ref, await self._rounds.material(ref), scene)
        findings = await findings_of(self._rounds, start.findings_of)
        await self._rounds.open_round(ref, brief, findings)

    async def _scene(self, box: Box) -> Scene:
        listing, total = await self._runner.list_files(box.id, LISTING_MAX)
        return Scene(box.id, box.fence, listing, total)

    async def _record(self, record: PlanRecord) -> PlanShape:
        plan = read_stored(Plan, await self._rounds.outcome(record.planner))
        return await self._rounds.record_plan(record.planner, record.revision, plan)


async def findings_of(rounds: RoundStore, review: AgentRef | None) -> list[str]:
    """What a review found, or nothing."""
    if review is None:
        return []
    return list(read_stored(SubmitReview, await rounds.outcome(review)).findings)
