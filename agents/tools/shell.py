"""`shell`: run a command in the workspace."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from agents.contracts.errors import ErrorCode
from agents.contracts.network import Denial
from agents.contracts.sandbox import ExecState, ExecStatus
from agents.contracts.tool import Idempotency, Risk, ToolContract, ToolResult
from agents.tools.base import OBSERVATION_CAP_BYTES, Arguments, Tool
from agents.tools.context import ToolContext
from agents.tools.faults import ADVICE
from agents.tools.text import cap, clean

DEFAULT_TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 3_600.0
_NETWORK_ADVICE = "Only hosts that the task names are reached; do without the others, or say that you need them."


class Shell(Arguments):
    """Arguments of `shell`."""

    command: Annotated[
        str,
        Field(
            min_length=1, max_length=100_000, pattern=r"^[^\x00]*$", description="Run by /bin/sh -c in the workspace."
        ),
    ]
    timeout_s: Annotated[
        float,
        Field(gt=0, le=MAX_TIMEOUT_S, description="Seconds it may take (default 120, at most 3600)."),
    ] = DEFAULT_TIMEOUT_S


CONTRACT = ToolContract(
    name="shell",
    description=(
        "Run a shell command in the workspace and read its output and exit code. Each command is a fresh /bin/sh: cd,"
        " variables and background processes do not last, files do. stdin is empty; there is no network but for hosts"
        " that the task names. Long output is shown head and tail."
    ),
    risk=Risk.WRITE,
    idempotency=Idempotency.KEYED,
    timeout_s=DEFAULT_TIMEOUT_S,
    output_cap_bytes=OBSERVATION_CAP_BYTES,
    errors=(ErrorCode.EXEC_TIMEOUT, ErrorCode.EXEC_KILLED, ErrorCode.EXEC_OUTCOME_UNKNOWN, ErrorCode.DISK_FULL),
)


async def run(ctx: ToolContext, args: Shell) -> ToolResult:
    """Run it and say what came of it."""
    return observation(await ctx.run(args.command, args.timeout_s), args.timeout_s)


def observation(status: ExecStatus, timeout_s: float) -> ToolResult:
    """A command's end as the model reads it; the exit code is in the head. A command that did not end by itself has an
    error code and no exit code, since which signal it died of is chance."""
    code, said = _end(status, timeout_s)
    if code and status.reason != "killed":  # then nothing that it could do better
        said = f"{said} {ADVICE[code]}"
    said = "\n".join(filter(None, (said, refusals(status.denied))))
    output = cap(clean(status.output), total_bytes=status.total_bytes).text
    return ToolResult(
        tool=CONTRACT.name,
        content=_content(output, said),
        exit_code=status.exit_code if code is None else None,
        error_code=code,
        duration_ms=status.duration_ms,
    )


def refusals(denied: Sequence[Denial]) -> str:
    """What of the network was refused while a command ran, for the reader; empty where nothing was."""
    if not denied:
        return ""
    places = ", ".join(f"{clean(d.host) or '(no host)'}:{d.port} ({d.reason.value})" for d in denied)
    return f"The sandbox's network refused {places}. {_NETWORK_ADVICE}"


def _end(status: ExecStatus, timeout_s: float) -> tuple[ErrorCode | None, str]:
    """The error code, if it did not end by itself, and a line for the reader."""
    if status.state is not ExecState.EXITED or status.reason == "lost":
        return ErrorCode.EXEC_OUTCOME_UNKNOWN, "The command was started, and how it ended is not known."
    if status.reason == "timeout":
        return ErrorCode.EXEC_TIMEOUT, f"The command did not end within {timeout_s:g} s."
    if status.reason == "oom":
        return ErrorCode.EXEC_KILLED, "The sandbox ran out of memory, and the system killed the command for it."
    if status.reason == "output_limit":
        return ErrorCode.EXEC_KILLED, "The command was ended because it printed more than it may."
    if status.reason == "killed":
        return ErrorCode.EXEC_KILLED, "The command was killed, because its task was cancelled or its sandbox was ended."
    if status.reason == "signal" and status.exit_code is not None:
        return None, f"The command died of signal {status.exit_code - 128}."
    return None, ""


def _content(output: str, said: str) -> str:
    return "\n".join(part for part in (output.rstrip("\n"), said) if part) or "(no output)"


TOOL: Tool[Shell] = Tool(CONTRACT, Shell, run)
