"""What control tools share: they end an agent's round or make it wait, stand alone in a reply, have no handler."""

from pydantic import BaseModel

from agents.contracts.errors import ErrorCode
from agents.contracts.tool import Idempotency, Risk, ToolContract, ToolResult

HAND_IN_MAX_BYTES = 12 * 1024
"""What is handed in is kept in a row, told in an event and mailed on: it is short, and what is longer is a file."""

_ACCEPTED = {
    "finish_step": "Accepted. The step goes to review.",
    "give_up": "Accepted. The step ends here.",
    "submit_plan": "Accepted. The plan is carried out.",
    "submit_review": "Accepted. The review is recorded.",
}


def control_contract(name: str, description: str, errors: tuple[ErrorCode, ...] = ()) -> ToolContract:
    """The contract of a control tool."""
    return ToolContract(
        name=name,
        description=description,
        risk=Risk.WRITE,
        idempotency=Idempotency.NATURAL,
        timeout_s=30.0,
        output_cap_bytes=1_024,
        errors=(ErrorCode.CONTROL_CALL_NOT_ALONE, *errors),
        control=True,
    )


def too_heavy(arguments: BaseModel) -> str | None:
    """What is wrong with the weight of what is handed in, if anything."""
    size = len(arguments.model_dump_json().encode())
    if size <= HAND_IN_MAX_BYTES:
        return None
    return (
        f"The arguments weigh {size} bytes together, at most {HAND_IN_MAX_BYTES}: say it shorter, and put what is"
        " longer into a file that you name."
    )


def accepted(tool: str) -> ToolResult:
    """The result of a control call that ended the round."""
    return ToolResult(tool=tool, content=_ACCEPTED[tool])


def postponed(tool: str) -> ToolResult:
    """The result of a control call that came while mail lay unread: the round goes on."""
    return ToolResult(tool=tool, content="Not yet: messages have come in. Read them, act on them, then call it again.")
