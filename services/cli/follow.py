"""What `submit --watch`, `watch` and `demo` have in common: follow a task, tell its end, choose the exit code."""

from collections.abc import Sequence

import typer
from rich.console import Console

from agents.contracts.task import TaskResult, TaskStatus
from services.cli import exits, live, summary
from services.cli.connect import Access

INTERRUPTED_HINT = """
Interrupted. The task goes on.
  watch it again:  longhaul watch {task}
  end it:          longhaul cancel {task}"""


def to_end(access: Access, task_id: str, console: Console, *, after: int = 0, hints: Sequence[str] = ()) -> TaskResult:
    """Show a task until it has ended, then its result."""
    live.follow(access, task_id, console, after)
    result = settled(access, task_id)
    show(result, console, hints)
    return result


def show(result: TaskResult, console: Console, hints: Sequence[str] = ()) -> None:
    """The end of a task in words."""
    for line in summary.of(result, hints):
        console.print(line.rich(), soft_wrap=True, highlight=False)


def quietly(access: Access, task_id: str) -> TaskResult:
    """Wait for a task's end without a word."""
    with access.client(patience_s=live.STREAM_PATIENCE_S) as client:
        for _ in client.stream(task_id):
            pass
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
        typer.echo(INTERRUPTED_HINT.format(task=task_id), err=True)
        raise typer.Exit(exits.INTERRUPTED) from None
    if as_json:
        typer.echo(result.model_dump_json(indent=1))
    raise typer.Exit(exit_code(result))


def exit_code(result: TaskResult) -> int:
    """0 only where the goal was reached."""
    return exits.DONE if result.status is TaskStatus.COMPLETED else exits.TASK_FAILED
