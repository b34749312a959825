"""What `submit --watch`, `watch` and `demo` have in common: follow a task, tell its end, choose the exit code."""

import io
from collections.abc import Callable, Iterable, Sequence

import typer
from rich.console import Console

from agents.contracts.task import TaskResult, TaskStatus
from services.cli import exits, live, summary
from services.cli.connect import Access
from services.cli.live import Watched
from services.cli.styles import Line
from services.stack.program import runnable


def interrupted(task_id: str) -> str:
    """A task whose follower was interrupted: it goes on."""
    return runnable(f"""
Interrupted. The task goes on.
  watch it again:  longhaul watch {task_id}
  end it:          longhaul cancel {task_id}""")


def to_end(access: Access, task_id: str, console: Console) -> TaskResult:
    """Show a task until it has ended, then its result."""
    return all_to_end(access, [Watched(task_id)], console)[0]


def all_to_end(
    access: Access, tasks: Sequence[Watched], console: Console, hints: Callable[[], Sequence[str]] = tuple
) -> list[TaskResult]:
    """Show tasks side by side until all have ended, then their results; `hints` come before the commands to copy."""
    live.follow(access, tasks, console)
    results = [settled(access, task.task_id) for task in tasks]
    titles = [f"{task.label}: " if len(tasks) > 1 else "" for task in tasks]
    for title, result in zip(titles, results, strict=True):
        _print(console, summary.outcome(result, title))
    folders = [task.label if len(tasks) > 1 else "." for task in tasks]
    _print(console, summary.closer(list(zip(results, folders, strict=True)), hints()))
    return results


def show(result: TaskResult, console: Console) -> None:
    """The end of a task in words."""
    _print(console, [*summary.outcome(result), *summary.closer([(result, ".")])])


def _print(console: Console, lines: Iterable[Line]) -> None:
    for line in lines:
        console.print(line.rich(), soft_wrap=True, highlight=False)


def quietly(access: Access, task_id: str) -> TaskResult:
    """Wait for a task's end without a word."""
    live.follow(access, [Watched(task_id)], Console(file=io.StringIO(), quiet=True))
    return settled(access, task_id)


def settled(access: Access, task_id: str) -> TaskResult:
    """The result of an ended task."""
    with access.client() as client:
        return client.result(task_id)


def attached(access: Access, task_id: str, *, as_json: bool) -> None:
    """`watch`: follow, print, exit. Ctrl-C leaves the task alone and says so."""
    try:
        result = quietly(access, task_id) if as_json else to_end(access, task_id, Console())
    except KeyboardInterrupt:
        typer.echo(interrupted(task_id), err=True)
        raise typer.Exit(exits.INTERRUPTED) from None
    if as_json:
        typer.echo(result.model_dump_json(indent=1))
    raise typer.Exit(exit_code(result))


def exit_code(result: TaskResult) -> int:
    """0 only where the goal was reached."""
    return exits.DONE if result.status is TaskStatus.COMPLETED else exits.TASK_FAILED
