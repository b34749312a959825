"""`ask`: a question that has to be answered before the step can go on. Its agent waits, and nobody else does."""

from typing import Annotated

from pydantic import Field

from agents.contracts.errors import ErrorCode
from agents.contracts.message import PERSON, MessageText, Recipient
from agents.contracts.tool import ToolContract, ToolResult
from agents.tools.base import Arguments, Tool
from agents.tools.control import control_contract


class Ask(Arguments):
    """Arguments of `ask`."""

    question: MessageText
    to: Annotated[Recipient, Field(description="person, or an agent: a step's id (its executor) or reviewer.")] = PERSON


CONTRACT: ToolContract = control_contract(
    name="ask",
    description="Ask a person (or another agent) and wait for the answer, which comes as a message. Only for what you"
    " cannot find out or decide yourself. Must be the only call.",
    errors=(ErrorCode.UNKNOWN_RECIPIENT, ErrorCode.RECIPIENT_GONE),
)

TOOL: Tool[Ask] = Tool(CONTRACT, Ask)


def answered() -> ToolResult:
    """The result of a question that has its answer."""
    return ToolResult(tool=CONTRACT.name, content="Answered. The answer is in the messages that follow.")


def interrupted() -> ToolResult:
    """The result of a question whose asker has to read something else first."""
    return ToolResult(
        tool=CONTRACT.name,
        content="Not answered yet, but a message has come in; it follows. Your question stays open, and its answer will"
        " come as a message. If you cannot go on without it, ask again in the same words: you wait on for it.",
    )
