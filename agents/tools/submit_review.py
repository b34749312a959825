"""`submit_review`: the reviewer's verdict."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from agents.contracts.errors import ErrorCode
from agents.contracts.tool import ToolContract
from agents.tools.base import Arguments, Tool
from agents.tools.control import control_contract

Line = Annotated[str, Field(min_length=1, max_length=4_000)]


class SubmitReview(Arguments):
    """Arguments of `submit_review`."""

    verdict: Annotated[
        Literal["approve", "revise", "replan"],
        Field(
            description="approve: all criteria met. revise: the same step must be mended. replan: the plan is wrong."
        ),
    ]
    findings: Annotated[
        list[Line],
        Field(
            max_length=30,
            description="What must change, one thing each, with file, line and command. Empty only to approve.",
        ),
    ] = []
    evidence: Annotated[
        list[Line],
        Field(max_length=50, description="Commands you ran yourself and what they showed."),
    ] = []

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if self.verdict != "approve" and not self.findings:
            raise ValueError(f"the verdict {self.verdict} needs at least one finding")
        return self


CONTRACT: ToolContract = control_contract(
    name="submit_review",
    description="Give your verdict on what you reviewed. Must be the only call.",
    errors=(ErrorCode.CHECKS_FAILED,),
)

TOOL: Tool[SubmitReview] = Tool(CONTRACT, SubmitReview)
