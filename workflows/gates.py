"""Whether a call may run: by the task's word about its tool, by what a person decided, and by what is known of earlier
attempts at it. What is not plainly allowed does not run."""

from collections.abc import Sequence
from typing import Literal

from agents.contracts.approval import Approval, ApprovalKind, ApprovalState, arguments_digest
from agents.contracts.base import excerpt
from agents.contracts.errors import ErrorCode
from agents.contracts.tool import Idempotency, Risk, ToolResult
from agents.contracts.trajectory import Brief
from agents.policy.approval import asks
from agents.tools.faults import observe
from agents.tools.parse import CheckedCall
from workflows.records import NO_ROWS, CallRows, Question

Way = ToolResult | Question | Literal["run", "wait"]
"""What follows for a call: its result without running it; a question to ask; it runs; its question is not decided."""

_NOT_RUN = {
    ApprovalState.DENIED: (ErrorCode.APPROVAL_DENIED, "A person was asked and did not allow it."),
    ApprovalState.EXPIRED: (ErrorCode.APPROVAL_EXPIRED, "A person was asked and nobody decided in time."),
}
_NOT_AGAIN = {
    ApprovalState.DENIED: "A person was asked and decided not to run it again.",
    ApprovalState.EXPIRED: "A person was asked whether to run it again, and nobody decided in time.",
}


class Gates:
    """The gates of one agent's calls. `patience_s` is how long a person has where the task does not say."""

    def __init__(self, brief: Brief, patience_s: float) -> None:
        self._tools = brief.tools
        self._expires_s = patience_s if brief.limits.approval_s is None else brief.limits.approval_s

    def questions(self, calls: Sequence[CheckedCall]) -> tuple[Question, ...]:
        """What to ask of a reply that has just come."""
        return tuple(self._question(call, "call", NO_ROWS) for call in calls if asks(call, self._tools))

    def depend_on_rows(self, calls: Sequence[CheckedCall], *, found: bool) -> bool:
        """Whether rows say something of these calls; `found` where an earlier attempt may have begun them: where a
        sandbox was lost, too."""
        return found or any(asks(c, self._tools) for c in calls)

    def way(self, call: CheckedCall, rows: CallRows) -> Way:
        """What follows for a call that has no result yet."""
        if call.refusal is not None:
            return call.refusal
        if call.index in rows.begun:
            return self.unknown(call, rows) if irreversible(call) else observe(call.call.name, *_UNKNOWN)
        last = _last(call, rows)
        if last is None and asks(call, self._tools):
            return self._question(call, "call", rows)
        if last is not None and last.state is ApprovalState.PENDING:
            return "wait"
        if last is not None and last.state is not ApprovalState.APPROVED:
            return _not_run(call, last)
        if call.index in rows.lost and _went_with_its_sandbox(call, last):
            return self.unknown(call, rows) if irreversible(call) else observe(call.call.name, *_LOST)
        return "run"

    def unknown(self, call: CheckedCall, rows: CallRows) -> Question:
        """What to ask about a call that cannot be undone, was begun, and ended nobody knows how."""
        return self._question(call, "unknown_outcome", rows)

    def _question(self, call: CheckedCall, kind: ApprovalKind, rows: CallRows) -> Question:
        before = [approval for approval in rows.approvals if approval.call_index == call.index]
        return Question(
            i=call.index,
            kind=kind,
            tool=call.call.name,
            arguments=excerpt(call.call.arguments),
            arguments_sha256=arguments_digest(call.call.arguments),
            number=len(before) + 1,
            expires_s=self._expires_s,
        )


_UNKNOWN = (
    ErrorCode.EXEC_OUTCOME_UNKNOWN,
    "The call may or may not have taken effect: what ran it is gone. Look before you repeat it.",
)


_LOST = (
    ErrorCode.EXEC_OUTCOME_UNKNOWN,
    "The sandbox in which the call may have been begun was lost. It was not run again. A notice says what there is.",
)


def _went_with_its_sandbox(call: CheckedCall, last: Approval | None) -> bool:
    """Whether a call that may have been begun in a lost sandbox must not simply run in the next one. (Of a call that
    cannot be repeated it is known whether it was begun; one that a person has said to run again does.)"""
    again = last is not None and last.kind == "unknown_outcome"
    return call.tool is not None and call.tool.contract.changes_files and not unrepeatable(call) and not again


def unrepeatable(call: CheckedCall) -> bool:
    """Whether nothing makes a repeat of this call harmless: that it begins is stored before it does."""
    return call.tool is not None and call.tool.contract.idempotency is Idempotency.NONE


def irreversible(call: CheckedCall) -> bool:
    """Whether its effect cannot be undone."""
    return call.tool is not None and call.tool.contract.risk is Risk.IRREVERSIBLE


def again(call: CheckedCall, rows: CallRows) -> int:
    """How often a person has said to run this call once more: such a run must not be answered by the one before."""
    mine = [approval for approval in _of(call, rows) if approval.kind == "unknown_outcome"]
    return sum(approval.state is ApprovalState.APPROVED for approval in mine)


def _of(call: CheckedCall, rows: CallRows) -> list[Approval]:
    """The questions about this call with these very arguments; a changed argument makes another call of it."""
    digest = arguments_digest(call.call.arguments)
    return [
        approval
        for approval in rows.approvals
        if (approval.call_index, approval.tool, approval.arguments_sha256) == (call.index, call.call.name, digest)
    ]


def _last(call: CheckedCall, rows: CallRows) -> Approval | None:
    mine = _of(call, rows)
    return mine[-1] if mine else None


def _not_run(call: CheckedCall, approval: Approval) -> ToolResult:
    said = f"\nThe note: {approval.note}" if approval.note else ""
    if approval.kind == "unknown_outcome":
        detail = f"It was begun, and how it ended is not known. {_NOT_AGAIN[approval.state]}{said}"
        return observe(call.call.name, ErrorCode.EXEC_OUTCOME_UNKNOWN, detail)
    code, detail = _NOT_RUN[approval.state]
    return observe(call.call.name, code, detail + said)
