"""Tool calls and what comes of them."""

import json
from enum import StrEnum

from pydantic import ValidationError

from agents.contracts.artifact import BlobRef
from agents.contracts.base import Count, Wire
from agents.contracts.errors import ErrorCode


class Risk(StrEnum):
    """What a call can do to the world. Neighbouring `read` calls of one reply may overlap; others run in order."""

    READ = "read"
    WRITE = "write"
    EXTERNAL = "external"
    IRREVERSIBLE = "irreversible"


class Idempotency(StrEnum):
    """How a repeat of the same call is made harmless."""

    NATURAL = "natural"
    KEYED = "keyed"
    NONE = "none"


class ToolContract(Wire):
    """What a tool promises. `alternative` is the tool to try when this one keeps failing; `control` calls end or
    steer an agent and must stand alone in a reply. One that is `in_sandbox` works on the workspace's files."""

    name: str
    description: str
    risk: Risk
    idempotency: Idempotency
    timeout_s: float
    output_cap_bytes: Count
    errors: tuple[ErrorCode, ...] = ()
    alternative: str | None = None
    control: bool = False
    in_sandbox: bool = True

    @property
    def changes_files(self) -> bool:
        """Whether the workspace may be another one afterwards."""
        return self.in_sandbox and not self.control and self.risk is not Risk.READ


class ToolCall(Wire):
    """A call as the model wrote it. `id` is the model's own; `arguments` is its raw JSON text."""

    id: str
    name: str
    arguments: str


class ToolResult(Wire):
    """What came of a call, as the model will read it.

    `content` is text of at most the tool's output cap; the whole output, where longer, is the blob `full`.
    `effect` is what an observer needs beyond the text (for example the digest of a saved artifact).
    """

    version: int = 1
    tool: str
    content: str
    exit_code: int | None = None
    error_code: ErrorCode | None = None
    duration_ms: Count = 0
    full: BlobRef | None = None

    @property
    def ok(self) -> bool:
        """Whether the tool did what was asked; a command's non-zero exit is a result, not a fault."""
        return self.error_code is None


class ObservationHead(Wire):
    """The machine-readable first line of every observation; a replay is matched on it."""

    tool: str
    exit_code: int | None = None
    error_code: ErrorCode | None = None


def render_observation(result: ToolResult) -> str:
    """The text of the `tool` message: the head as one line of JSON, then the content."""
    head = ObservationHead(tool=result.tool, exit_code=result.exit_code, error_code=result.error_code)
    return head.model_dump_json(exclude_none=True) + "\n" + result.content


def parse_observation(text: str) -> ObservationHead | None:
    """The head of an observation, or None where the text is not one."""
    try:
        return ObservationHead.model_validate(json.loads(text.partition("\n")[0]))
    except (ValueError, ValidationError):
        return None
