"""Model calls: what is asked, what comes back, what it cost."""

from typing import Annotated, Literal

from pydantic import Field

from agents.contracts.base import Count, Micro, UtcTime, Wire
from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Sha256
from agents.contracts.plan import Tier
from agents.contracts.tool import ToolCall

CALL_HEADER = "X-Longhaul-Call"
"""Header: the coordinate of the call, ``role/revision.step/round/turn/m{k}``."""
INSTRUCTION_HEADER = "X-Longhaul-Instruction"
"""Header: the sha256 of the task's instruction."""
RECORDING_HEADER = "X-Longhaul-Recording"
"""Header: the name of a recording to play, where the task names one."""
KEY_HEADER = "X-Longhaul-Key"
"""Header: the logical key of the call; a gateway that still has the answer to a key returns it again."""


class SystemMessage(Wire):
    """What the harness says before everything else."""

    role: Literal["system"] = "system"
    content: str


class UserMessage(Wire):
    """What the harness or a person says."""

    role: Literal["user"] = "user"
    content: str


class AssistantMessage(Wire):
    """What the model said, with its tool calls."""

    role: Literal["assistant"] = "assistant"
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()


class ToolMessage(Wire):
    """The observation that answers one tool call."""

    role: Literal["tool"] = "tool"
    tool_call_id: str
    content: str


ChatMessage = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class ToolSchema(Wire):
    """A tool as it is offered to a model; `parameters` is JSON Schema text with sorted keys."""

    name: str
    description: str
    parameters_json: str


class ModelRequest(Wire):
    """One model call. The prompt is `messages`, or in rollout mode `prompt_token_ids`. `request_sha256` is over what is
    shown and how it is asked; `max_tokens` is not in it, as that is what a worker's setting and the budget leave."""

    key: str
    coordinate: str
    tenant_id: str
    task_id: str
    agent_id: str
    fence: int
    tier: Tier
    instruction_sha256: Sha256
    recording: str | None = None
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSchema, ...]
    tool_choice: Literal["auto", "required"] = "required"
    max_tokens: int
    temperature: float = 0.0
    prompt_token_ids: tuple[int, ...] | None = None
    request_sha256: Sha256 | None = None


class Usage(Wire):
    """Tokens and money of one call or a sum of calls. `cached` is the part of `prompt` that an engine's prefix cache
    served."""

    prompt_tokens: Count = 0
    cached_tokens: Count = 0
    completion_tokens: Count = 0
    cost_micro: Micro = 0

    @property
    def tokens(self) -> int:
        """What counts against a token budget: prompt and completion."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cost_micro=self.cost_micro + other.cost_micro,
        )


class ModelReply(Wire):
    """What a model answered. The token fields are there where an engine gives them (exactness for rollouts)."""

    version: int = 1
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str
    usage: Usage
    model: str
    tier: Tier
    latency_ms: Count = 0
    engine: str | None = None
    weight_version: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    completion_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None


class Delta(Wire):
    """A piece of a reply as it streams. Not an event: it is lost without harm. A reader drops the text it holds for
    an older `fence` or another `key`."""

    task_id: str
    agent_id: str
    key: str
    fence: int
    text: str
    at: UtcTime


class BadReply(Wire):
    """A reply that cannot be used: why, and what its author is told before it is asked again."""

    code: ErrorCode
    detail: str
