"""`write_file`: create or replace a whole file."""

from typing import Annotated

from pydantic import Field

from agents.contracts.errors import ErrorCode
from agents.contracts.tool import Idempotency, Risk, ToolContract, ToolResult
from agents.tools.base import OBSERVATION_CAP_BYTES, Arguments, Tool
from agents.tools.context import ToolContext
from agents.tools.paths import Path


class WriteFile(Arguments):
    """Arguments of `write_file`."""

    path: Path
    content: Annotated[str, Field(description="The whole new content, exactly.")]


CONTRACT = ToolContract(
    name="write_file",
    description=(
        "Create a file or replace its whole content; folders are made. To change an existing file prefer edit_file."
    ),
    risk=Risk.WRITE,
    idempotency=Idempotency.KEYED,
    timeout_s=30.0,
    output_cap_bytes=OBSERVATION_CAP_BYTES,
    errors=(
        ErrorCode.NOT_A_FILE,
        ErrorCode.PATH_ESCAPE,
        ErrorCode.PERMISSION_DENIED,
        ErrorCode.FILE_TOO_LARGE,
        ErrorCode.DISK_FULL,
    ),
)


async def run(ctx: ToolContext, args: WriteFile) -> ToolResult:
    """Write and say what was there before."""
    change = await ctx.write(args.path, args.content)
    did = "created" if change.created else "replaced"
    return ToolResult(tool=CONTRACT.name, content=f"{did} {change.path}, {change.bytes} bytes")


TOOL: Tool[WriteFile] = Tool(CONTRACT, WriteFile, run)
