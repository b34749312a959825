"""`give_up`: the executor says that its step cannot be done."""

from typing import Annotated

from pydantic import Field

from agents.contracts.tool import ToolContract
from agents.tools.base import Arguments, Tool
from agents.tools.control import control_contract


class GiveUp(Arguments):
    """Arguments of `give_up`."""

    reason: Annotated[
        str, Field(min_length=1, max_length=4_000, description="What stands in the way, and what you tried.")
    ]


CONTRACT: ToolContract = control_contract(
    name="give_up",
    description="End your step undone because it cannot be done here. The last resort. Must be the only call.",
)

TOOL: Tool[GiveUp] = Tool(CONTRACT, GiveUp)
