"""Approvals: a call that waits for a person, what was decided, and by whom."""

import hashlib
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from agents.contracts.base import Edge, UtcTime, Wire
from agents.contracts.ids import Sha256

NOTE_MAX_CHARS = 2_000
EXPIRES_MAX_S = 31_536_000

ToolPolicy = Literal["allow", "ask", "deny"]
"""What a task says of a tool: run it, ask a person before every call, never run it."""

ApprovalKind = Literal["call", "unknown_outcome"]
"""Why a person is asked: before a call runs; or because a call that cannot be undone was begun and nobody knows how it
ended (to approve is to run it again, to deny is to leave it)."""

Decision = Literal["approve", "deny"]


class ApprovalState(StrEnum):
    """Three outcomes and the wait for one. Running out of time is never a denial."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"


class Approval(Wire):
    """One question to a person. It holds for this call with these arguments and for nothing else: `arguments_sha256` is
    the digest of the arguments as the model wrote them, `arguments` an excerpt. `actor` and `note` are those of the
    decision."""

    version: int = 1
    id: str
    task_id: str
    agent_id: str
    step_id: str
    round: int
    turn: int
    call_index: int
    call_key: str
    kind: ApprovalKind
    tool: str
    arguments: str
    arguments_sha256: Sha256
    state: ApprovalState
    requested_at: UtcTime
    expires_at: UtcTime
    decided_at: UtcTime | None = None
    actor: str | None = None
    note: str | None = None


class ApprovalDecision(Edge):
    """The body of ``POST /v1/approvals/{id}/decide``. The note of a denial is shown to the model."""

    decision: Decision
    note: Annotated[str, Field(max_length=NOTE_MAX_CHARS)] | None = None


def arguments_digest(arguments: str) -> str:
    """What an approval binds to: the digest of a call's arguments as they were written."""
    return hashlib.sha256(arguments.encode("utf-8", "replace")).hexdigest()


def approval_id(call_key: str, arguments_sha256: str, number: int) -> str:
    """The id of the `number`-th question (from 1) about a call: asking it twice finds the same one."""
    return "appr_" + hashlib.sha256(f"{call_key}/{arguments_sha256}/{number}".encode()).hexdigest()[:24]
