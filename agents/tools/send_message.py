"""`send_message`: a short text to another agent or to a person, without waiting for anything."""

from typing import Annotated

from pydantic import Field

from agents.contracts.errors import ErrorCode
from agents.contracts.message import MessageText, Recipient
from agents.contracts.tool import Idempotency, Risk, ToolContract, ToolResult
from agents.tools.base import Arguments, Tool
from agents.tools.context import ToolContext

To = Annotated[Recipient, Field(description="planner, a step's id (its executor), reviewer, or person.")]


class SendMessage(Arguments):
    """Arguments of `send_message`."""

    to: To
    text: MessageText


CONTRACT = ToolContract(
    name="send_message",
    description="Send a short message to another agent of the team or to a person; it does not wait for an answer.",
    risk=Risk.WRITE,
    idempotency=Idempotency.KEYED,
    in_sandbox=False,
    timeout_s=30.0,
    output_cap_bytes=1_024,
    errors=(ErrorCode.UNKNOWN_RECIPIENT,),
)


async def run(ctx: ToolContext, args: SendMessage) -> ToolResult:
    """Hand it over; it is written with this call's result."""
    receipt = await ctx.send(args.to, args.text)
    return ToolResult(tool=CONTRACT.name, content=f"Sent to {receipt.to}. {receipt.note}")


TOOL: Tool[SendMessage] = Tool(CONTRACT, SendMessage, run)
