"""`save_artifact`: keep a file for the task's user."""

from typing import Annotated

from pydantic import Field

from agents.contracts.errors import ErrorCode
from agents.contracts.tool import Idempotency, Risk, ToolContract, ToolResult
from agents.tools.base import OBSERVATION_CAP_BYTES, Arguments, Tool
from agents.tools.context import ToolContext
from agents.tools.paths import Path


class SaveArtifact(Arguments):
    """Arguments of `save_artifact`."""

    path: Path
    media_type: Annotated[
        str | None,
        Field(
            max_length=100,
            pattern=r"^[a-z0-9.+-]+/[a-z0-9.+-]+$",
            description="Such as text/csv or image/png; guessed from the name where left out.",
        ),
    ] = None


CONTRACT = ToolContract(
    name="save_artifact",
    description="Keep a file of the workspace as a result that the user of the task can download.",
    risk=Risk.WRITE,
    idempotency=Idempotency.KEYED,
    timeout_s=300.0,
    output_cap_bytes=OBSERVATION_CAP_BYTES,
    errors=(
        ErrorCode.FILE_NOT_FOUND,
        ErrorCode.NOT_A_FILE,
        ErrorCode.PATH_ESCAPE,
        ErrorCode.PERMISSION_DENIED,
        ErrorCode.FILE_TOO_LARGE,
    ),
)


async def run(ctx: ToolContext, args: SaveArtifact) -> ToolResult:
    """Keep it and name its digest."""
    kept = await ctx.save(args.path, args.media_type)
    content = f"kept {kept.path}, {kept.bytes} bytes, {kept.media_type}, sha256 {kept.sha256}"
    return ToolResult(tool=CONTRACT.name, content=content)


TOOL: Tool[SaveArtifact] = Tool(CONTRACT, SaveArtifact, run)
