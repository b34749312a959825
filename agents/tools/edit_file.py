"""`edit_file`: replace one piece of a file. Where it cannot, it shows what the file really holds."""

from typing import Annotated

from pydantic import Field

from agents.contracts.errors import ErrorCode, FaultClass, LonghaulError
from agents.contracts.sandbox import FileText
from agents.contracts.tool import Idempotency, Risk, ToolContract, ToolResult
from agents.tools.base import OBSERVATION_CAP_BYTES, Arguments, Tool
from agents.tools.context import ToolContext
from agents.tools.nearest import explain_ambiguous, explain_no_match
from agents.tools.paths import Path

SEARCHED_LINES = 2_000


class EditFile(Arguments):
    """Arguments of `edit_file`."""

    path: Path
    old: Annotated[str, Field(min_length=1, description="The exact text to replace; it must occur once in the file.")]
    new: Annotated[str, Field(description="What to put in its place.")]


CONTRACT = ToolContract(
    name="edit_file",
    description=(
        "Replace the only occurrence of `old` in a file by `new`. `old` is matched exactly, with its indentation and"
        " line ends, and without the line numbers that read_file shows."
    ),
    risk=Risk.WRITE,
    idempotency=Idempotency.KEYED,
    timeout_s=30.0,
    output_cap_bytes=OBSERVATION_CAP_BYTES,
    errors=(
        ErrorCode.FILE_NOT_FOUND,
        ErrorCode.NOT_A_FILE,
        ErrorCode.PATH_ESCAPE,
        ErrorCode.PERMISSION_DENIED,
        ErrorCode.FILE_TOO_LARGE,
        ErrorCode.DISK_FULL,
        ErrorCode.EDIT_NO_MATCH,
        ErrorCode.EDIT_AMBIGUOUS,
    ),
    alternative="write_file",
)


async def run(ctx: ToolContext, args: EditFile) -> ToolResult:
    """Edit; on a miss, raise the same fault with what the file holds there."""
    try:
        change = await ctx.edit(args.path, args.old, args.new)
    except LonghaulError as fault:
        if fault.code not in (ErrorCode.EDIT_NO_MATCH, ErrorCode.EDIT_AMBIGUOUS):
            raise
        raise LonghaulError(fault.code, await _explain(ctx, args, fault)) from fault
    before, after = _lines(args.old), _lines(args.new)
    content = f"edited {change.path}: {before} replaced by {after}; {change.bytes} bytes now"
    return ToolResult(tool=CONTRACT.name, content=content)


async def _explain(ctx: ToolContext, args: EditFile, fault: LonghaulError) -> str:
    file = await _look(ctx, args.path)
    if file is None:
        return fault.detail
    explain = explain_no_match if fault.code is ErrorCode.EDIT_NO_MATCH else explain_ambiguous
    return f"{args.path}: {explain(file.text, args.old)}"


async def _look(ctx: ToolContext, path: str) -> FileText | None:
    """The file, if it can be read; a fault of the tool's own kind only costs the explanation."""
    try:
        return await ctx.read(path, 1, SEARCHED_LINES)
    except LonghaulError as fault:
        if fault.code.rule.fault is not FaultClass.TOOL:
            raise
        return None


def _lines(text: str) -> str:
    count = len(text.removesuffix("\n").split("\n")) if text else 0
    return f"{count} line" if count == 1 else f"{count} lines"


TOOL: Tool[EditFile] = Tool(CONTRACT, EditFile, run)
