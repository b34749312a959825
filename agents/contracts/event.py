"""The event catalogue: one discriminated union (`type`) of everything that happens in a task.

An event is written in the transaction of the change it tells of and numbered per task without gaps. Names are
``subject.past-tense``; token and terminal deltas are not events. Texts here are excerpts (≤ 2,000 characters); whole
bodies are blobs.
"""

from typing import Annotated, Literal

from pydantic import Field

from agents.contracts.approval import ApprovalKind, Decision
from agents.contracts.artifact import BlobRef
from agents.contracts.base import Count, UtcTime, Wire
from agents.contracts.errors import ErrorCode, ErrorInfo
from agents.contracts.ids import Role, Sha256
from agents.contracts.message import MailKind
from agents.contracts.model import Usage
from agents.contracts.sandbox import ExecStatus
from agents.contracts.task import StopReason, TaskStatus


class _Data(Wire):
    version: int = 1


# --- task ---------------------------------------------------------------------------------------------------------
class TaskCreated(_Data):
    """A task was accepted: from here on it will be worked on."""

    type: Literal["task.created"] = "task.created"
    instruction: str
    tier: str


class TaskStarted(_Data):
    """Work began."""

    type: Literal["task.started"] = "task.started"


class TaskStatusChanged(_Data):
    """The status changed; `waiting_for` says what a waiting task needs."""

    type: Literal["task.status"] = "task.status"
    status: TaskStatus
    waiting_for: str | None = None


class TaskCompleted(_Data):
    """The task ended well: reviewed, and its checks passed."""

    type: Literal["task.completed"] = "task.completed"
    summary: str
    usage: Usage


class TaskFailed(_Data):
    """The task ended without its goal."""

    type: Literal["task.failed"] = "task.failed"
    stop_reason: StopReason
    error: ErrorInfo | None = None
    usage: Usage


class TaskCancelled(_Data):
    """The task was cancelled, and nothing of it runs any more."""

    type: Literal["task.cancelled"] = "task.cancelled"
    usage: Usage


class TaskStalled(_Data):
    """Nothing has moved for too long; an operator should look."""

    type: Literal["task.stalled"] = "task.stalled"
    detail: str


# --- plan and steps -----------------------------------------------------------------------------------------------
class PlanStepLine(Wire):
    """A step in an event: its words stay in the plan."""

    id: str
    title: str
    depends_on: tuple[str, ...] = ()


class PlanSubmitted(_Data):
    """The planner's first plan. `cut`: it is long, and titles, notes or dependencies are not whole here."""

    type: Literal["plan.submitted"] = "plan.submitted"
    revision: int
    steps: tuple[PlanStepLine, ...]
    notes: str = ""
    cut: bool = False


class PlanRevised(_Data):
    """A new revision replaced the plan. `cut` as in `plan.submitted`."""

    type: Literal["plan.revised"] = "plan.revised"
    revision: int
    steps: tuple[PlanStepLine, ...]
    notes: str = ""
    cut: bool = False


class PlanApproved(_Data):
    """A person approved the plan."""

    type: Literal["plan.approved"] = "plan.approved"
    revision: int
    actor: str


class StepStarted(_Data):
    """An executor began a step, or a new round of it after findings."""

    type: Literal["step.started"] = "step.started"
    title: str
    round: int


class StepCompleted(_Data):
    """A step was done and its review approved it."""

    type: Literal["step.completed"] = "step.completed"
    round: int
    summary: str


class StepFailed(_Data):
    """A step ended without being done."""

    type: Literal["step.failed"] = "step.failed"
    round: int
    stop_reason: StopReason
    error: ErrorInfo | None = None


# --- turns and models ---------------------------------------------------------------------------------------------
class TurnStarted(_Data):
    """A turn began: its inputs are stored."""

    type: Literal["turn.started"] = "turn.started"
    round: int


class TurnCompleted(_Data):
    """Every call of a turn has its result."""

    type: Literal["turn.completed"] = "turn.completed"
    round: int
    calls: Count


class TurnFailed(_Data):
    """No usable reply came."""

    type: Literal["turn.failed"] = "turn.failed"
    round: int
    error: ErrorInfo


class ModelCalled(_Data):
    """A model call is about to be made; its intent is stored."""

    type: Literal["model.called"] = "model.called"
    key: str
    tier: str
    k: int


class ModelCompleted(_Data):
    """A usable reply is stored."""

    type: Literal["model.completed"] = "model.completed"
    key: str
    model: str
    text: str
    calls: tuple[str, ...]
    usage: Usage
    latency_ms: Count


class ModelFailed(_Data):
    """A reply could not be used, or none came."""

    type: Literal["model.failed"] = "model.failed"
    key: str
    error: ErrorInfo


class ModelFallback(_Data):
    """The next call of the turn goes to another tier."""

    type: Literal["model.fallback"] = "model.fallback"
    key: str
    from_tier: str
    to_tier: str
    code: ErrorCode


# --- tools and commands -------------------------------------------------------------------------------------------
class ToolCalled(_Data):
    """A tool call's intent is stored; `arguments` is an excerpt."""

    type: Literal["tool.called"] = "tool.called"
    key: str
    tool: str
    arguments: str


class ToolCompleted(_Data):
    """A tool did what was asked."""

    type: Literal["tool.completed"] = "tool.completed"
    key: str
    tool: str
    exit_code: int | None = None
    content: str
    duration_ms: Count


class ToolFailed(_Data):
    """A tool could not do what was asked; the model sees why."""

    type: Literal["tool.failed"] = "tool.failed"
    key: str
    tool: str
    code: ErrorCode
    content: str


class ToolUnknown(_Data):
    """A tool call was begun and its outcome cannot be known."""

    type: Literal["tool.unknown"] = "tool.unknown"
    key: str
    tool: str


class ExecStarted(_Data):
    """A command began in a sandbox. A tool's is told together with its end; that it is about to run, `tool.called` has
    told before. A check's is told at once."""

    type: Literal["exec.started"] = "exec.started"
    exec_id: str
    command: str
    purpose: Literal["tool", "check"] = "tool"


class ExecOutput(_Data):
    """A stored piece of a long command's output."""

    type: Literal["exec.output"] = "exec.output"
    exec_id: str
    text: str
    blob: BlobRef | None = None


class ExecExited(_Data):
    """A command ended."""

    type: Literal["exec.exited"] = "exec.exited"
    exec_id: str
    exit_code: int | None = None
    reason: str
    output: str
    duration_ms: Count
    purpose: Literal["tool", "check"] = "tool"


class ExecLost(_Data):
    """A command was started and its end is not known."""

    type: Literal["exec.lost"] = "exec.lost"
    exec_id: str


# --- review -------------------------------------------------------------------------------------------------------
class ReviewStarted(_Data):
    """A review began in a clean copy of the workspace."""

    type: Literal["review.started"] = "review.started"
    round: int


class ReviewSubmitted(_Data):
    """The reviewer's verdict."""

    type: Literal["review.submitted"] = "review.submitted"
    round: int
    verdict: Literal["approve", "revise", "replan"]
    findings: tuple[str, ...]
    evidence: tuple[str, ...]


# --- messages, approvals, steering --------------------------------------------------------------------------------
class MessageSent(_Data):
    """A message to an agent or a person is stored; `kind` says what it is, `reply_to` which question it answers,
    `expires_s` how long a question is waited with."""

    type: Literal["message.sent"] = "message.sent"
    message_id: str
    sender: str
    to: str
    text: str
    kind: MailKind | None = None
    reply_to: str | None = None
    expires_s: float | None = None


class MessageDelivered(_Data):
    """A message entered its recipient's context."""

    type: Literal["message.delivered"] = "message.delivered"
    message_id: str


class ApprovalRequested(_Data):
    """A call waits for a person; the approval binds to the call's key and the digest of its arguments. `kind` is
    `unknown_outcome` where the call was begun before and nobody knows how it ended."""

    type: Literal["approval.requested"] = "approval.requested"
    approval_id: str
    key: str
    arguments_sha256: Sha256
    kind: ApprovalKind = "call"
    tool: str = ""
    arguments: str = ""
    expires_at: UtcTime | None = None


class ApprovalDecided(_Data):
    """A person approved or denied."""

    type: Literal["approval.decided"] = "approval.decided"
    approval_id: str
    decision: Decision
    actor: str
    note: str | None = None


class ApprovalExpired(_Data):
    """Nobody decided in time, or the task ended first."""

    type: Literal["approval.expired"] = "approval.expired"
    approval_id: str


class SteerApplied(_Data):
    """A person's instruction entered an agent's context."""

    type: Literal["steer.applied"] = "steer.applied"
    message_id: str


# --- checkpoints, artifacts, sandboxes, locks, budget, agents -----------------------------------------------------
class CheckpointCreated(_Data):
    """The workspace was kept."""

    type: Literal["checkpoint.created"] = "checkpoint.created"
    checkpoint_id: str
    blob: BlobRef


class ArtifactCreated(_Data):
    """A file was kept."""

    type: Literal["artifact.created"] = "artifact.created"
    artifact_id: str
    path: str
    sha256: Sha256
    bytes: Count


class SandboxClaimed(_Data):
    """A sandbox was made for the task."""

    type: Literal["sandbox.claimed"] = "sandbox.claimed"
    sandbox_id: str
    backend: str
    purpose: Literal["workspace", "clean_copy"]


class SandboxSnapshot(_Data):
    """A sandbox's files were kept as they were after turn `turn` (0: before the first) of round `round` of a step;
    `added_bytes` had to be stored for it. A checkpoint is one too."""

    type: Literal["sandbox.snapshot"] = "sandbox.snapshot"
    sandbox_id: str
    blob: BlobRef
    round: Count = 0
    turn: Count = 0
    added_bytes: Count = 0
    duration_ms: Count = 0


class SandboxRestored(_Data):
    """A sandbox was made again in place of a lost one, with the files as they were after turn `turn` of round `round`
    of step `step`. Without a snapshot (`blob`) it holds what it held at first, and `turn` is 0."""

    type: Literal["sandbox.restored"] = "sandbox.restored"
    sandbox_id: str
    lost_id: str = ""
    blob: BlobRef | None = None
    step: str | None = None
    round: Count = 0
    turn: Count = 0


class SandboxLost(_Data):
    """A sandbox's files or host are gone."""

    type: Literal["sandbox.lost"] = "sandbox.lost"
    sandbox_id: str
    detail: str


class SandboxReleased(_Data):
    """A sandbox was destroyed on purpose."""

    type: Literal["sandbox.released"] = "sandbox.released"
    sandbox_id: str


class SandboxDenied(_Data):
    """A command tried to reach what the task's network does not allow, or what is not there. `reason` is a
    `DenialReason`; `exec_id` is the command that ran."""

    type: Literal["sandbox.denied"] = "sandbox.denied"
    sandbox_id: str
    detail: str
    exec_id: str = ""
    host: str = ""
    port: int = 0
    reason: str = ""


def denials(sandbox_id: str, status: ExecStatus) -> tuple[SandboxDenied, ...]:
    """What was refused to a command while it ran."""
    return tuple(
        SandboxDenied(
            sandbox_id=sandbox_id,
            detail=f"{denied.host or '(no host)'}:{denied.port} was not reached: {denied.reason.value}",
            exec_id=status.exec_id,
            host=denied.host,
            port=denied.port,
            reason=denied.reason.value,
        )
        for denied in status.denied
    )


class LockWaiting(_Data):
    """A step waits for a resource that another holds."""

    type: Literal["lock.waiting"] = "lock.waiting"
    resource: str
    holder: str


class LockAcquired(_Data):
    """A step holds a resource."""

    type: Literal["lock.acquired"] = "lock.acquired"
    resource: str
    fence: int


class LockLost(_Data):
    """A lease ran out while it was held."""

    type: Literal["lock.lost"] = "lock.lost"
    resource: str


class LockReleased(_Data):
    """A resource was given back."""

    type: Literal["lock.released"] = "lock.released"
    resource: str


class BudgetWarned(_Data):
    """Four fifths of a limit are spent."""

    type: Literal["budget.warned"] = "budget.warned"
    limit: str
    used: Count
    allowed: Count


class BudgetExhausted(_Data):
    """A limit is reached; nothing more is spent."""

    type: Literal["budget.exhausted"] = "budget.exhausted"
    limit: str
    used: Count
    allowed: Count


class AgentStarted(_Data):
    """An agent began a round."""

    type: Literal["agent.started"] = "agent.started"
    role: Role
    step: str
    round: int


class AgentWaiting(_Data):
    """An agent waits for something outside it; `detail` says why it has to, as far as that is known."""

    type: Literal["agent.waiting"] = "agent.waiting"
    waiting_for: str
    retry_after_s: float | None = None
    detail: str | None = None


class AgentFinished(_Data):
    """An agent's round ended."""

    type: Literal["agent.finished"] = "agent.finished"
    role: Role
    step: str
    round: int
    reason: str
    error: ErrorInfo | None = None


EventData = Annotated[
    TaskCreated
    | TaskStarted
    | TaskStatusChanged
    | TaskCompleted
    | TaskFailed
    | TaskCancelled
    | TaskStalled
    | PlanSubmitted
    | PlanRevised
    | PlanApproved
    | StepStarted
    | StepCompleted
    | StepFailed
    | TurnStarted
    | TurnCompleted
    | TurnFailed
    | ModelCalled
    | ModelCompleted
    | ModelFailed
    | ModelFallback
    | ToolCalled
    | ToolCompleted
    | ToolFailed
    | ToolUnknown
    | ExecStarted
    | ExecOutput
    | ExecExited
    | ExecLost
    | ReviewStarted
    | ReviewSubmitted
    | MessageSent
    | MessageDelivered
    | ApprovalRequested
    | ApprovalDecided
    | ApprovalExpired
    | SteerApplied
    | CheckpointCreated
    | ArtifactCreated
    | SandboxClaimed
    | SandboxSnapshot
    | SandboxRestored
    | SandboxLost
    | SandboxReleased
    | SandboxDenied
    | LockWaiting
    | LockAcquired
    | LockLost
    | LockReleased
    | BudgetWarned
    | BudgetExhausted
    | AgentStarted
    | AgentWaiting
    | AgentFinished,
    Field(discriminator="type"),
]

TERMINAL_TYPES = frozenset({"task.completed", "task.failed", "task.cancelled"})
"""The last event of a task is one of these, and nothing follows it."""


class Event(Wire):
    """An event with its place. `seq` counts from 1 per task without gaps."""

    task_id: str
    seq: int
    at: UtcTime
    agent_id: str | None = None
    step_id: str | None = None
    turn: int | None = None
    data: EventData
