"""`read_file`: lines of a text file, numbered.

Numbers cost a few tokens and pay for themselves: tracebacks, compilers and reviewers speak in line numbers, and paging
by `offset` needs them. The price is a model that copies them into `edit_file`; that tool notices and says so.
"""

from typing import Annotated

from pydantic import Field

from agents.contracts.errors import ErrorCode
from agents.contracts.sandbox import FileText
from agents.contracts.tool import Idempotency, Risk, ToolContract, ToolResult
from agents.tools.base import OBSERVATION_CAP_BYTES, Arguments, Tool
from agents.tools.context import ToolContext
from agents.tools.paths import Path
from agents.tools.text import printable

DEFAULT_LINES = 400
MAX_LINES = 2_000
LINE_CHARS = 2_000


class ReadFile(Arguments):
    """Arguments of `read_file`."""

    path: Path
    offset: Annotated[int, Field(ge=1, description="First line, from 1.")] = 1
    limit: Annotated[int, Field(ge=1, le=MAX_LINES, description="How many lines (default 400, at most 2000).")] = (
        DEFAULT_LINES
    )


CONTRACT = ToolContract(
    name="read_file",
    description=(
        "Read lines of a text file. Each line comes as its number, a tab, and the line; number and tab are not part of"
        " the file. Go on with a larger offset where it says that more follows."
    ),
    risk=Risk.READ,
    idempotency=Idempotency.NATURAL,
    timeout_s=30.0,
    output_cap_bytes=OBSERVATION_CAP_BYTES,
    errors=(
        ErrorCode.FILE_NOT_FOUND,
        ErrorCode.NOT_A_FILE,
        ErrorCode.PATH_ESCAPE,
        ErrorCode.PERMISSION_DENIED,
        ErrorCode.FILE_TOO_LARGE,
    ),
)


async def run(ctx: ToolContext, args: ReadFile) -> ToolResult:
    """Read and number."""
    file = await ctx.read(args.path, args.offset, args.limit)
    return ToolResult(tool=CONTRACT.name, content=numbered(file, args.offset))


def numbered(file: FileText, offset: int) -> str:
    """The lines with their numbers, whole lines up to the cap, and where to go on."""
    if not file.text:
        return _nothing(file, offset)
    lines = file.text.removesuffix("\n").split("\n")
    shown = _within_cap([f"{n}\t{_short(line)}" for n, line in enumerate(lines, offset)])
    last = offset + len(shown) - 1
    head = f"{file.path}: lines {offset} to {last} of {file.total_lines}, {file.total_bytes} bytes in all"
    more = [f"… {file.total_lines - last} more lines: offset={last + 1} …"] if last < file.total_lines else []
    return "\n".join([head, *shown, *more])


def _nothing(file: FileText, offset: int) -> str:
    if file.total_bytes == 0:
        return f"{file.path}: the file is empty"
    return f"{file.path}: no line {offset}; the file has {file.total_lines} lines"


def _short(line: str) -> str:
    line = printable(line.removesuffix("\r"))
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} … {len(line) - LINE_CHARS} more characters"


def _within_cap(lines: list[str]) -> list[str]:
    """As many lines as fit; always one."""
    room = OBSERVATION_CAP_BYTES - 200
    for count, line in enumerate(lines):
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            return lines[: max(count, 1)]
    return lines


TOOL: Tool[ReadFile] = Tool(CONTRACT, ReadFile, run)
