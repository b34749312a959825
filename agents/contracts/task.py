"""A task: what a user submits, and what anyone may see of it."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, field_validator

from agents.contracts.approval import EXPIRES_MAX_S, ToolPolicy
from agents.contracts.artifact import Artifact
from agents.contracts.base import Count, Edge, Micro, UtcTime, Wire
from agents.contracts.errors import ErrorInfo
from agents.contracts.ids import Id, Role, Sha256
from agents.contracts.model import Usage
from agents.contracts.network import NetworkPolicy
from agents.contracts.plan import Tier
from agents.contracts.sandbox import DEFAULT_TEMPLATE, SandboxLimits, TemplateName

INSTRUCTION_MAX_BYTES = 64 * 1024
EXACT_MAX = 2**53 - 1
"""The largest integer that every reader of JSON keeps exactly."""


class Limits(Edge):
    """What a task may spend. None means no limit of the task's own; 0 means nothing may be spent.

    `tokens` counts prompt and completion tokens of every model call; `wall_s` is from acceptance to the end; `turns`
    is over all agents; `parallel` is how many steps run at once; `review_rounds` is per reviewed thing; `approval_s` is
    how long a person has to decide on a call (None: the installation's setting).
    """

    tokens: Annotated[Count, Field(le=EXACT_MAX)] | None = None
    cost_micro: Annotated[Micro, Field(le=EXACT_MAX)] | None = None
    wall_s: Annotated[int, Field(ge=1, le=31_536_000)] | None = None
    turns: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    parallel: Annotated[int, Field(ge=1, le=32)] = 4
    review_rounds: Annotated[int, Field(ge=1, le=10)] = 3
    approval_s: Annotated[int, Field(ge=1, le=EXPIRES_MAX_S)] | None = None


class InputFile(Edge):
    """An uploaded file placed into the workspace at `path` (relative, no ``..``)."""

    file_id: Id
    path: Annotated[str, Field(min_length=1, max_length=1_000)]

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        if path.startswith("/") or "\x00" in path or ".." in path.split("/"):
            raise ValueError("must be relative to the workspace and must not contain '..'")
        return path


class Repo(Edge):
    """An uploaded tar archive (plain or gzip) whose content becomes the workspace."""

    file_id: Id


class TaskSpec(Edge):
    """The body of ``POST /v1/tasks``. `tools` says of tools by name whether their calls run, ask a person first, or are
    refused; a tool that is not named goes by its risk."""

    instruction: Annotated[str, Field(min_length=1, max_length=INSTRUCTION_MAX_BYTES)]
    repo: Repo | None = None
    files: Annotated[list[InputFile], Field(max_length=100)] = []
    tier: Tier = "auto"
    recording: Annotated[str, Field(max_length=100)] | None = None
    checks: Annotated[list[Annotated[str, Field(min_length=1, max_length=4_000)]], Field(max_length=20)] = []
    limits: Limits = Limits()
    sandbox: SandboxLimits = SandboxLimits()
    network: NetworkPolicy = NetworkPolicy()
    template: TemplateName = DEFAULT_TEMPLATE
    tools: Annotated[dict[Annotated[str, Field(min_length=1, max_length=64)], ToolPolicy], Field(max_length=64)] = {}
    metadata: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=64)], Annotated[str, Field(max_length=512)]],
        Field(max_length=16),
    ] = {}

    @field_validator("instruction")
    @classmethod
    def _says_something(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("must say what to do; it is blank")
        if len(text.encode()) > INSTRUCTION_MAX_BYTES:
            raise ValueError(f"must be at most {INSTRUCTION_MAX_BYTES} bytes of UTF-8")
        return text


class TaskStatus(StrEnum):
    """Where a task is. The last three are ends."""

    QUEUED = "queued"
    PLANNING = "planning"
    RUNNING = "running"
    REVIEWING = "reviewing"
    WAITING = "waiting"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing will happen any more."""
        return self in (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED)


SLOT = "slot"
"""What a queued task waits for: a place among the tasks that run at once."""
FREES_ITS_SLOT = frozenset({"approval", "person"})
"""What a waiting task can wait for without holding its place meanwhile: people may take days."""


class StopReason(StrEnum):
    """Why a task or an agent ended; `error` comes with an `ErrorInfo`."""

    COMPLETED = "completed"
    FAILED_CHECKS = "failed_checks"
    REJECTED = "rejected"
    GAVE_UP = "gave_up"
    NO_PROGRESS = "no_progress"
    BUDGET = "budget"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    ERROR = "error"


StepState = Literal["pending", "running", "reviewing", "completed", "failed"]


class StepView(Wire):
    """A step of the current plan with its state."""

    id: str
    title: str
    depends_on: list[str]
    state: StepState
    round: int = 0
    summary: str | None = None


class AgentView(Wire):
    """What an agent does at this moment. `activity_at` is when it began doing so; `waiting_for` is what a waiting one
    needs: ``engine``, ``person``, ``agent``, ``approval``."""

    id: str
    role: Role
    step: str
    state: Literal["running", "waiting", "finished"]
    activity: str
    activity_at: UtcTime
    waiting_for: str | None = None
    turns: Count


class CheckResult(Wire):
    """One of the task's own checks as it ran in a clean copy. `output` is the tail."""

    command: str
    exit_code: int | None
    passed: bool
    output: str
    duration_ms: Count


class TaskSummary(Wire):
    """A row of ``GET /v1/tasks``. `instruction` is its first 200 characters."""

    id: str
    status: TaskStatus
    waiting_for: str | None = None
    stop_reason: StopReason | None = None
    instruction: str
    tier: Tier
    created_at: UtcTime
    updated_at: UtcTime
    ended_at: UtcTime | None = None
    last_seq: Count
    turns: Count
    usage: Usage
    metadata: dict[str, str]


class TaskView(TaskSummary):
    """``GET /v1/tasks/{id}``. `as_of` is when this was read; the ages of things follow from it. `queue_position` is
    that of a task which waits for a slot among its tenant's own: 1 is the next of them (tenants take turns)."""

    as_of: UtcTime
    instruction_sha256: Sha256
    error: ErrorInfo | None = None
    queue_position: Count | None = None
    limits: Limits
    checks: list[str]
    plan_revision: int = 0
    steps: list[StepView]
    agents: list[AgentView]


class TaskResult(Wire):
    """``GET /v1/tasks/{id}/result`` of an ended task."""

    id: str
    status: TaskStatus
    stop_reason: StopReason
    error: ErrorInfo | None = None
    summary: str
    checks: list[CheckResult]
    artifacts: list[Artifact]
    turns: Count
    usage: Usage
    seconds: float
