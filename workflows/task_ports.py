"""The ports of a task's own activities. Each writing method is one transaction that is done once however often it is
called, and refuses (``ALREADY_FINISHED``) once the task has ended. All raise ``STORE_UNAVAILABLE`` (try again)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from agents.contracts.artifact import BlobRef
from agents.contracts.errors import ErrorInfo
from agents.contracts.network import NetworkPolicy
from agents.contracts.plan import Plan, StoredPlan, Tier
from agents.contracts.run import AgentRef, Controls, PlanShape, ReviewStart, TaskEnd, TaskRef, TaskStart
from agents.contracts.sandbox import DEFAULT_TEMPLATE, ExecStatus, SandboxInfo, SandboxLimits, Snapshot
from agents.contracts.task import CheckResult, Limits, StopReason
from agents.contracts.trajectory import Brief, StepReport
from workflows.records import Held

Purpose = Literal["workspace", "clean_copy"]


@dataclass(frozen=True)
class InputBlob:
    """An uploaded file and where it goes in the workspace."""

    path: str
    blob: BlobRef


@dataclass(frozen=True)
class TaskInputs:
    """What the workspace is made of."""

    repo: BlobRef | None
    files: tuple[InputBlob, ...]
    sandbox: SandboxLimits
    network: NetworkPolicy
    template: str


@dataclass(frozen=True)
class Material:
    """What briefs are written from. `reports` are by step id, of the plan's present revision."""

    goal: str
    instruction_sha256: str
    tier: Tier
    recording: str | None
    checks: tuple[str, ...]
    limits: Limits
    plan: StoredPlan | None
    reports: dict[str, StepReport]
    tools: dict[str, str] = field(default_factory=dict)
    network: tuple[str, ...] = ()
    template: str = DEFAULT_TEMPLATE


@dataclass(frozen=True)
class Closing:
    """What has to be quiet before a task may end: its agents with the fences that lock them out, and its sandboxes."""

    ended: bool
    agents: tuple[tuple[str, int], ...]
    sandboxes: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Box:
    """A sandbox as the rows have it. `origin` is the first of those that were made one in place of the other, and
    `fence` counts them from 1. One that is not `ready` is still to be made, from the snapshot `source` or (None) as the
    first one was."""

    id: str
    fence: int
    origin: str
    purpose: Purpose
    ready: bool
    source: BlobRef | None = None


@dataclass(frozen=True)
class Taken:
    """A snapshot that was taken of a sandbox: what was done up to `taken_at` is in it."""

    sandbox_id: str
    snapshot: Snapshot
    taken_at: datetime
    duration_ms: int


class TaskStore(Protocol):
    """The task's own row, its sandboxes, its end."""

    async def begin(self, task: TaskRef) -> TaskStart:
        """Work begins. ``NOT_FOUND``."""
        ...

    async def controls(self, task: TaskRef) -> Controls:
        """What a person has asked."""
        ...

    async def inputs(self, task: TaskRef) -> TaskInputs:
        """What to put into the workspace. ``NOT_FOUND`` where an upload is gone."""
        ...

    async def expect(self, task: TaskRef, sandbox_id: str, purpose: Purpose) -> None:
        """Note a sandbox that is about to be made, so that the end finds it whatever happens next."""
        ...

    async def claim(self, task: TaskRef, sandbox: SandboxInfo) -> None:
        """Note that it is made."""
        ...

    async def release(self, task: TaskRef, sandbox_id: str) -> None:
        """Note that a sandbox is gone."""
        ...

    async def closing(self, task: TaskRef) -> Closing:
        """Lock every agent of the task out, and say what there is to stop."""
        ...

    async def finish(self, task: TaskRef, end: TaskEnd) -> TaskEnd:
        """Settle what is reserved and write the end; a cancel that was asked for in time is what the task ends by."""
        ...


class SandboxStore(Protocol):
    """Lost sandboxes and what they are made again from. What is decided here is decided once, whoever asks."""

    async def current(self, task: TaskRef, sandbox_id: str) -> Box:
        """The last that was made in place of this one, or itself. ``SANDBOX_NOT_FOUND`` where no row names it."""
        ...

    async def replace(self, task: TaskRef, lost: str, why: ErrorInfo, held: Held | None) -> Box:
        """Decide that a sandbox is lost and what is made in its place; or, where that could not be made because its
        snapshot is damaged (`why`), what instead. Who works in it is fenced out, but for `held`, and the calls under
        way in it have an unknown outcome. What is current is returned, whoever decided it. ``SNAPSHOT_FAILED`` where
        every snapshot is damaged, ``SANDBOX_LOST`` where it was lost too often, `Fenced`."""
        ...

    async def restored(self, task: TaskRef, box: Box, made: SandboxInfo, held: Held | None) -> Box:
        """Note that it is made, and tell the agents that work in it what they have now. What is current is returned."""
        ...

    async def keep(self, held: Held, turn: int, taken: Taken) -> None:
        """Note a snapshot between two turns; `turn` is the one before. It takes the place of the one before it.
        ``SANDBOX_LOST`` where its sandbox was replaced, `Fenced`."""
        ...

    async def keep_copy(self, task: TaskRef, copy: str, executor: AgentRef) -> None:
        """Note that a clean copy holds what the checkpoint of this round holds, where there is one."""
        ...


class RoundStore(Protocol):
    """Rounds of agents, and the plan."""

    async def material(self, ref: AgentRef) -> Material:
        """What a brief of this agent is written from."""
        ...

    async def outcome(self, ref: AgentRef) -> str:
        """The JSON of the arguments that ended a round. ``NOT_FOUND`` where it ended otherwise."""
        ...

    async def open_round(self, ref: AgentRef, brief: Brief, findings: Sequence[str]) -> None:
        """Make the agent where it is new, its round, and mail it the findings."""
        ...

    async def record_plan(self, planner: AgentRef, revision: int, plan: Plan) -> PlanShape:
        """Keep a revision of the plan; steps done under the same id stay done."""
        ...


class StepStore(Protocol):
    """Steps and their reviews."""

    async def start_step(self, executor: AgentRef) -> None:
        """A round of a step begins."""
        ...

    async def fail_step(self, executor: AgentRef, reason: StopReason, error: ErrorInfo | None) -> None:
        """A step ends without being done."""
        ...

    async def start_review(self, review: ReviewStart, report: StepReport | None) -> None:
        """A review begins: keep what the executor reported."""
        ...

    async def keep_checkpoint(self, executor: AgentRef, taken: Taken) -> None:
        """The workspace was kept as the executor left it. ``SANDBOX_UNAVAILABLE`` where it was replaced meanwhile."""
        ...

    async def start_check(self, review: ReviewStart, exec_id: str, command: str, position: int) -> None:
        """One of the task's own checks begins."""
        ...

    async def keep_check(self, review: ReviewStart, position: int, status: ExecStatus, result: CheckResult) -> None:
        """One of the task's own checks ended."""
        ...

    async def checks_failed(self, review: ReviewStart) -> bool:
        """Whether a check that this review ran failed."""
        ...

    async def end_review(
        self, review: ReviewStart, verdict: str, findings: Sequence[str], evidence: Sequence[str]
    ) -> None:
        """The verdict is in; an approved step is done."""
        ...
