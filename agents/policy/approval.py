"""What may happen to a sound call: it runs, a person is asked first, or it is refused.

A task says of a tool `allow`, `ask` or `deny`; of a tool that it does not name the risk decides. A call that cannot be
undone is asked about unless the task was submitted with the word that it may run. Any other word counts as `deny`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from agents.contracts.approval import ToolPolicy
from agents.contracts.errors import ErrorCode
from agents.contracts.tool import Risk
from agents.tools.faults import observe
from agents.tools.parse import CheckedCall

BY_RISK: Mapping[Risk, ToolPolicy] = {
    Risk.READ: "allow",
    Risk.WRITE: "allow",
    Risk.EXTERNAL: "ask",
    Risk.IRREVERSIBLE: "ask",
}
"""What happens to calls of a tool that the task does not name. A risk that is not here is refused."""

_KNOWN = get_args(ToolPolicy)


def policy(risk: Risk, said: str | None) -> ToolPolicy:
    """The policy for a tool of this risk of which the task said this, if anything."""
    if said is None:
        return BY_RISK.get(risk, "deny")
    known: ToolPolicy = said if said in _KNOWN else "deny"  # type: ignore[assignment]
    return known


def restrict(calls: Sequence[CheckedCall], tools: Mapping[str, str]) -> tuple[CheckedCall, ...]:
    """The same calls; those that the task denies are refused, and so never run."""
    return tuple(_denied(call) if _policy(call, tools) == "deny" else call for call in calls)


def asks(call: CheckedCall, tools: Mapping[str, str]) -> bool:
    """Whether a person has to be asked before this call runs."""
    return _policy(call, tools) == "ask"


def _policy(call: CheckedCall, tools: Mapping[str, str]) -> ToolPolicy:
    """A refused call never runs, and a control call has no effect outside its own agent: both are nobody's question."""
    if call.tool is None or call.control:
        return "allow"
    return policy(call.tool.contract.risk, tools.get(call.call.name))


def _denied(call: CheckedCall) -> CheckedCall:
    detail = f"This task does not allow {call.call.name}."
    refusal = observe(call.call.name, ErrorCode.TOOL_NOT_ALLOWED, detail)
    return replace(call, tool=None, arguments=None, refusal=refusal)
