"""What a recording of a task holds beside the replies: each agent's trajectory, and what was asked at each call."""

from typing import Literal

from agents.contracts.base import Count, UtcTime, Wire
from agents.contracts.errors import ErrorCode, ErrorInfo
from agents.contracts.ids import Place, Sha256
from agents.contracts.plan import StoredPlan, Tier
from agents.contracts.run import BurstReason
from agents.contracts.task import CheckResult, Limits, StopReason, TaskStatus
from agents.contracts.tool import ToolCall
from agents.contracts.trajectory import Brief, Turn

REDACTED = "[redacted]"
"""What stands in a recording where something looked like a secret."""


class RecordedMessage(Wire):
    """One message of a request. What it says is `content`; or `texts[text]` of the task; or, where `turn` names one
    (``round/turn``), its reply (role assistant) or its `i`-th result with the usual first line (role tool)."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    text: str | None = None
    turn: str | None = None
    i: int | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class RecordedAsk(Wire):
    """A model call as it was asked. Its messages are the first `keep` of the call before (of this round) and then
    `messages`; its tools are the JSON in `texts[tools]`. `layers` are digests, `sha256` is over all of them."""

    call: str
    tier: Tier
    temperature: float
    tool_choice: Literal["auto", "required"]
    sha256: Sha256
    layers: dict[str, Sha256]
    tools: str
    keep: Count = 0
    messages: tuple[RecordedMessage, ...] = ()


class RecordedRound(Wire):
    """A round of an agent. No `brief`: it goes on with the one before; no `reason`: it had not ended. `refused` names
    calls (``turn/i``) that were refused without being run, `gated` those about which a person had to be asked first."""

    round: int
    brief: Brief | None = None
    reason: BurstReason | None = None
    error: ErrorInfo | None = None
    outcome: str | None = None
    turns: tuple[Turn, ...] = ()
    asks: tuple[RecordedAsk, ...] = ()
    refused: dict[str, ErrorCode] = {}
    gated: tuple[str, ...] = ()


class RecordedAgent(Wire):
    """An agent with its rounds, in order."""

    place: Place
    rounds: tuple[RecordedRound, ...]


class RecordedTask(Wire):
    """A task as it was when it was recorded. `notes` say what a replay cannot compare, and why."""

    id: str
    status: TaskStatus
    stop_reason: StopReason | None = None
    error: ErrorInfo | None = None
    summary: str = ""
    created_at: UtcTime
    ended_at: UtcTime | None = None
    recorded_at: UtcTime
    tier: Tier
    checks: tuple[str, ...] = ()
    limits: Limits
    check_results: tuple[CheckResult, ...] = ()
    plans: tuple[StoredPlan, ...] = ()
    agents: tuple[RecordedAgent, ...] = ()
    texts: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    redactions: Count = 0
