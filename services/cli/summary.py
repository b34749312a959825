"""The end of a task in words: what was kept, what was checked, what it took, where to look next."""

from collections.abc import Sequence

from agents.contracts.task import TaskResult, TaskStatus
from services.cli.styles import Line, bad, dim, good, plain, warn
from services.cli.words import count, one_line, spent
from services.stack.program import runnable


def outcome(result: TaskResult, title: str = "") -> list[Line]:
    """How it ended, what was checked, what was kept, what it took; `title` comes first."""
    lines = [plain(""), _verdict(result, title)]
    if result.summary:
        lines.append(plain(f"  {one_line(result.summary, 400)}"))
    for check in result.checks:
        mark = good("  check passed") if check.passed else bad(f"  check failed (exit code {check.exit_code})")
        lines.append(Line(f"{mark.text}: {one_line(check.command)}  {check.duration_ms / 1000:.1f} s", mark.style))
    lines.append(plain(f"  artifacts: {len(result.artifacts)}"))
    for kept in result.artifacts:
        lines.append(plain(f"    {one_line(kept.path)}  {kept.bytes} bytes  sha256 {kept.sha256}"))
    lines.append(plain(f"  {count(result.turns, 'turn')}, {result.seconds:.1f} s, {spent(result.usage)}"))
    return lines


def closer(results: Sequence[tuple[TaskResult, str]], hints: Sequence[str] = ()) -> list[Line]:
    """Commands to copy, for each result with the folder that its artifacts go to; `hints` come first."""
    commands = list(hints)
    for result, folder in results:
        commands += [f"longhaul artifacts {result.id} --download {folder}"] if result.artifacts else []
        commands.append(f"longhaul events {result.id}")
        commands += [f"longhaul result {result.id} --json"] if len(results) == 1 else []
    return [dim("Look closer:"), *(dim(f"  {runnable(command)}") for command in commands)]


def _verdict(result: TaskResult, title: str) -> Line:
    if result.status is TaskStatus.COMPLETED:
        return good(f"{title}{result.id} completed")
    why = f": {result.error.code.value}: {one_line(result.error.detail, 600)}" if result.error else ""
    show = warn if result.status is TaskStatus.CANCELLED else bad
    return show(f"{title}{result.id} {result.status.value}, stop reason {result.stop_reason.value}{why}")
