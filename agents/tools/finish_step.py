"""`finish_step`: the executor says that its step is done, and why one should believe it."""

from typing import Annotated

from pydantic import Field

from agents.contracts.errors import ErrorCode
from agents.contracts.tool import ToolContract
from agents.tools.base import Arguments, Tool
from agents.tools.control import control_contract
from agents.tools.paths import Path

Line = Annotated[str, Field(min_length=1, max_length=2_000)]


class FinishStep(Arguments):
    """Arguments of `finish_step`."""

    summary: Annotated[
        str, Field(min_length=1, max_length=4_000, description="What was done, for those who build on it.")
    ]
    evidence: Annotated[
        list[Line],
        Field(max_length=50, description="Commands you ran and what they showed; files changed."),
    ] = []
    artifacts: Annotated[
        list[Path], Field(max_length=100, description="Paths of files to keep as results; may be empty.")
    ] = []


CONTRACT: ToolContract = control_contract(
    name="finish_step",
    description="End your step: each acceptance criterion is met and you have seen it yourself. Must be the only call.",
    errors=(ErrorCode.ARTIFACT_MISSING,),
)

TOOL: Tool[FinishStep] = Tool(CONTRACT, FinishStep)
