"""What crosses Temporal: ids, cursors, counts and small decisions; never text of a model or a tool."""

from enum import StrEnum
from typing import Literal

from agents.contracts.base import Count, Wire
from agents.contracts.errors import ErrorInfo
from agents.contracts.ids import Place
from agents.contracts.task import Limits, StopReason


class TaskRef(Wire):
    """A task, and which of its lives."""

    tenant_id: str
    task_id: str
    epoch: int = 0


class TaskStart(Wire):
    """What the workflow needs to know of the accepted task. `deadline_s` is what is left of the wall-clock limit."""

    limits: Limits
    has_checks: bool
    deadline_s: float | None = None
    cancel_requested: bool = False


class StepShape(Wire):
    """A step without its words: enough to schedule it."""

    id: str
    depends_on: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


class PlanShape(Wire):
    """A plan without its words."""

    revision: int
    steps: tuple[StepShape, ...]


class AgentRef(Wire):
    """The input of an `AgentWorkflow`: one agent doing one round (it goes on with the trajectory of earlier ones)."""

    tenant_id: str
    place: Place
    round: int


class TaskCursors(Wire):
    """How far a `TaskWorkflow` has come where it continues as new: all that it knows beside its input and the rows.

    `planned`: the plan of `revision` is recorded. `findings`: the review that asked for this revision. `done`: steps
    that are approved. `rounds`: the executor round that each step has reached.
    """

    revision: int = 1
    planned: bool = False
    findings: AgentRef | None = None
    done: tuple[str, ...] = ()
    rounds: dict[str, int] = {}


class TaskRun(TaskRef):
    """The input of a `TaskWorkflow`: a `TaskRef` starts one; `cursors` are there where it continues as new."""

    cursors: TaskCursors = TaskCursors()

    @property
    def task(self) -> TaskRef:
        """The task alone."""
        return TaskRef(tenant_id=self.tenant_id, task_id=self.task_id, epoch=self.epoch)


class BurstReason(StrEnum):
    """Why a burst of turns ended; derived from the ledger, so a lost answer is given again without a new turn."""

    FINISHED = "finished"
    GAVE_UP = "gave_up"
    CANCELLED = "cancelled"
    BUDGET = "budget"
    NO_PROGRESS = "no_progress"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    STORAGE_FULL = "storage_full"
    SANDBOX_LOST = "sandbox_lost"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    FAILED = "failed"
    LIMIT = "limit"
    DRAIN = "drain"
    ASKED = "asked"
    NEEDS_APPROVAL = "needs_approval"

    @property
    def final(self) -> bool:
        """Whether the agent's round is over."""
        return self not in _GOES_ON

    @property
    def waits_for_rows(self) -> bool:
        """Whether the next burst comes when something is in the rows: an answer, a decision."""
        return self in (BurstReason.ASKED, BurstReason.NEEDS_APPROVAL)

    @property
    def outage(self) -> bool:
        """Whether something that is needed is away: the next burst tries again, after a pause that grows."""
        return self in (BurstReason.ENGINE_UNAVAILABLE, BurstReason.STORAGE_FULL, BurstReason.SANDBOX_UNAVAILABLE)


_GOES_ON = frozenset(
    {
        BurstReason.ENGINE_UNAVAILABLE,
        BurstReason.STORAGE_FULL,
        BurstReason.SANDBOX_UNAVAILABLE,
        BurstReason.LIMIT,
        BurstReason.DRAIN,
        BurstReason.ASKED,
        BurstReason.NEEDS_APPROVAL,
    }
)


Verdict = Literal["approve", "revise", "replan"]


class BurstEnd(Wire):
    """The answer of the `run_turns` activity. `error` is there for `failed`, `sandbox_lost` and outages;
    `verdict` where a reviewer finished."""

    reason: BurstReason
    turns: Count
    control_seq: int = 0
    retry_after_s: float | None = None
    error: ErrorInfo | None = None
    verdict: Verdict | None = None


class AgentOutcome(Wire):
    """How an agent's round ended, in the shape a workflow decides on. `verdict` is the reviewer's."""

    reason: BurstReason
    verdict: Verdict | None = None
    error: ErrorInfo | None = None


class RoundStart(Wire):
    """Open a round of a planner or an executor. `findings_of` is the review whose findings are mailed to it."""

    agent: AgentRef
    findings_of: AgentRef | None = None


class PlanRecord(Wire):
    """Keep what the planner handed in as the plan's next revision."""

    planner: AgentRef
    revision: int


class StepChange(Wire):
    """A step began a round, or ended without being done (`end`)."""

    executor: AgentRef
    end: "TaskEnd | None" = None


class ReviewStart(Wire):
    """Review in a clean copy: the step that `executor` has just done, or with `final` the whole task."""

    reviewer: AgentRef
    executor: AgentRef | None = None
    final: bool = False


class ReviewEnd(Wire):
    """What a review came to. `checks_failed` tells of the task's own checks, where this review ran them."""

    verdict: Verdict
    checks_failed: bool = False


class Controls(Wire):
    """What a person has asked of a running task."""

    control_seq: int = 0
    cancel_requested: bool = False


class Finish(Wire):
    """End a task."""

    task: TaskRef
    end: "TaskEnd"


class TaskEnd(Wire):
    """How a task ends."""

    stop_reason: StopReason
    error: ErrorInfo | None = None
