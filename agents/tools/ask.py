"""`ask`: a question that has to be answered before the step can go on. Its agent waits, and nobody else does."""

from typing import Annotated, Literal

from pydantic import Field

from agents.contracts.errors import ErrorCode
from agents.contracts.message import PERSON, MessageText, Recipient
from agents.contracts.tool import ToolContract, ToolResult
from agents.tools.base import Arguments, Tool
from agents.tools.control import control_contract
from agents.tools.faults import observe

MAX_WAIT_S = 2_592_000
"""Thirty days."""


class Ask(Arguments):
    """Arguments of `ask`."""

    question: MessageText
    to: Annotated[Recipient, Field(description="person, or an agent: a step's id (its executor) or reviewer.")] = PERSON
    timeout_s: Annotated[
        float | None,
        Field(ge=1, le=MAX_WAIT_S, description="Seconds to wait at most; then you go on without. Default: no limit."),
    ] = None


CONTRACT: ToolContract = control_contract(
    name="ask",
    description="Ask a person (or another agent) and wait for the answer, which comes as a message. Only for what you"
    " cannot find out or decide yourself. Must be the only call.",
    errors=(ErrorCode.UNKNOWN_RECIPIENT, ErrorCode.RECIPIENT_GONE, ErrorCode.ASK_TIMED_OUT),
)

TOOL: Tool[Ask] = Tool(CONTRACT, Ask)


Came = Literal["answer", "expired", "gone", "message"]
"""What ended a wait for an answer."""


def came_of(what: Came) -> ToolResult:
    """The result of a question whose asker waits no longer."""
    if what == "expired":
        detail = "Nobody answered within timeout_s. The question is closed."
        return observe(CONTRACT.name, ErrorCode.ASK_TIMED_OUT, detail)
    return ToolResult(tool=CONTRACT.name, content=_CAME[what])


_CAME: dict[Came, str] = {
    "answer": "Answered. The answer is in the messages that follow.",
    "gone": "Nobody will answer: the one you asked has ended its round. Decide it yourself.",
    "message": "Not answered yet, but a message has come in; it follows. Your question stays open, and its answer will"
    " come as a message. If you cannot go on without it, ask again in the same words: you wait on for it.",
}
