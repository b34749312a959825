"""An agent's trajectory: everything a prompt is rendered from, turn by turn, as the ledger keeps it."""

from agents.contracts.base import Count, UtcTime, Wire
from agents.contracts.errors import ErrorInfo
from agents.contracts.ids import Place, Sha256
from agents.contracts.message import Mail
from agents.contracts.model import BadReply, ModelReply
from agents.contracts.plan import Plan, PlanStep, Tier
from agents.contracts.sandbox import DEFAULT_TEMPLATE, FileEntry
from agents.contracts.task import CheckResult, Limits
from agents.contracts.tool import ToolResult


class TurnInputs(Wire):
    """What a turn began with, stored by its first transaction: a retry renders from these, so the same key always has
    the same prompt. `None` budgets mean unlimited."""

    version: int = 1
    at: UtcTime
    mail: tuple[Mail, ...] = ()
    control_seq: int = 0
    tokens_left: int | None = None
    cost_left_micro: int | None = None
    turns_left: int
    deadline_at: UtcTime | None = None


class Attempt(Wire):
    """The k-th model call of a turn: unanswered (both None), answered, or answered with something unusable.
    `request_sha256` is that of the request, where it ended."""

    k: int
    reply: ModelReply | None = None
    bad: BadReply | None = None
    request_sha256: Sha256 | None = None


class Turn(Wire):
    """One model call (with its repeats) and its tool calls; `results[i]` belongs to the i-th call of the good reply
    and is None while that call is open. `failed` is set where no usable reply came and the turn was given up."""

    round: int
    turn: int
    inputs: TurnInputs
    attempts: tuple[Attempt, ...] = ()
    results: tuple[ToolResult | None, ...] = ()
    failed: ErrorInfo | None = None

    @property
    def reply(self) -> ModelReply | None:
        """The usable reply, once there is one."""
        last = self.attempts[-1] if self.attempts else None
        return last.reply if last and last.bad is None else None

    @property
    def complete(self) -> bool:
        """Whether nothing of the turn is open."""
        return self.failed is not None or (self.reply is not None and all(r is not None for r in self.results))


class StepReport(Wire):
    """What a finished step left for those who come after it."""

    step_id: str
    title: str
    summary: str
    evidence: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()


class Brief(Wire):
    """What an agent knows from its start; frozen then, except that a new round may add mail.

    `goal` is the task's instruction verbatim. `step` is the executor's or reviewed step. `reports` are those of the
    steps it depends on (executor) or of all steps under review (reviewer). `checks` are results from a clean copy.
    `tools` is what the task says of tools; a word that is not known here counts as a refusal (`policy.approval`).
    `network` names the hosts that commands may reach, `template` what programs the sandbox has.
    """

    version: int = 1
    tenant_id: str
    place: Place
    goal: str
    instruction_sha256: Sha256
    tier: Tier
    recording: str | None = None
    task_checks: tuple[str, ...] = ()
    limits: Limits
    listing: tuple[FileEntry, ...] = ()
    listing_total: Count = 0
    plan: Plan | None = None
    step: PlanStep | None = None
    reports: tuple[StepReport, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    findings: tuple[str, ...] = ()
    sandbox_id: str | None = None
    sandbox_fence: int = 1
    tools: dict[str, str] = {}
    network: tuple[str, ...] = ()
    template: str = DEFAULT_TEMPLATE
