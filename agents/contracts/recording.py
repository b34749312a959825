"""Recordings: what a model said at each call of one task, and what it must have seen before it said it."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from agents.contracts.base import Count, Edge
from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Sha256
from agents.contracts.recorded import RecordedTask
from agents.contracts.tool import parse_observation

VERSION = 1
"""Of the format. Optional fields come without a new one."""

CALL_PATTERN = r"^(planner|executor|reviewer)/\d+\.[a-z0-9][a-z0-9_-]*/\d+/\d+/m\d+$"


class Seen(Edge):
    """One observation, reduced to what a replay is matched on."""

    tool: str
    exit_code: int | None = None
    error_code: ErrorCode | None = None


class Expect(Edge):
    """What a request must show: the tools offered (any order), and the observations since the last call, in order."""

    tools: tuple[str, ...]
    observations: tuple[Seen, ...] = ()


class SpokenCall(Edge):
    """A tool call; `arguments` is the object itself. `raw` is what the model wrote where that is no object."""

    name: str
    arguments: dict[str, Any] = {}
    raw: str | None = None


class RecordedUsage(Edge):
    """Tokens as they were counted when the reply was recorded."""

    prompt_tokens: Count
    completion_tokens: Count


class RecordedReply(Edge):
    """The model's words. Without `usage`, tokens are a quarter of the characters."""

    text: str = ""
    tool_calls: tuple[SpokenCall, ...] = ()
    finish_reason: str | None = None
    usage: RecordedUsage | None = None


class Entry(Edge):
    """One call: its coordinate ``role/revision.step/round/turn/m{k}``, what it must show, what is answered."""

    call: Annotated[str, Field(pattern=CALL_PATTERN)]
    expect: Expect
    reply: RecordedReply
    pace_ms: float | None = None


class Recording(Edge):
    """Every model reply of one task. It is chosen by `name` or by the digest of the task's instruction. `task` is there
    where ``longhaul record`` made the file: what `longhaul replay` plays against today's code."""

    version: Annotated[int, Field(ge=1, le=VERSION)] = VERSION
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$")]
    instruction: str
    instruction_sha256: Sha256
    entries: tuple[Entry, ...]
    task: RecordedTask | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if hashlib.sha256(self.instruction.encode()).hexdigest() != self.instruction_sha256:
            raise ValueError("instruction_sha256 is not the digest of instruction")
        calls = [entry.call for entry in self.entries]
        twice = sorted({call for call in calls if calls.count(call) > 1})
        if twice:
            raise ValueError(f"calls are recorded twice: {', '.join(twice)}")
        return self


def expectation(tools: Iterable[str], observations: Sequence[str]) -> Expect:
    """What a request shows: the names of its tools and the texts of its observations since the last call."""
    return Expect(tools=tuple(sorted(tools)), observations=tuple(_seen(text) for text in observations))


def _seen(text: str) -> Seen:
    head = parse_observation(text)
    if head is None:
        return Seen(tool="(not an observation)")
    return Seen(tool=head.tool, exit_code=head.exit_code, error_code=head.error_code)
