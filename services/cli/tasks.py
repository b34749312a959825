"""Commands on tasks: submit, watch, get, list, result, cancel, events, artifacts, demo."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agents.contracts.task import TaskSpec, TaskStatus, TaskSummary, TaskView
from services.cli import exits, follow, messages, spec
from services.cli.connect import Access, find
from services.cli.demo.run import demo
from services.cli.exits import guarded
from services.cli.stack import DataDirOption, data_dir_of
from services.cli.words import awaited, count, lines_of, one_line, spent
from services.client import Client
from services.stack.program import runnable

Task = Annotated[str, typer.Argument(metavar="TASK", help="A task's id.")]
_ROW = "{:<31}  {:<20}  {:<19}  {:>5}  {:>9}  {}"
AsJson = Annotated[bool, typer.Option("--json", help="JSON for scripts, on stdout.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (submit, watch, get, result, cancel, events, artifacts, demo):
        app.command()(command)
    app.command("list")(list_tasks)
    messages.register(app)


def access_of(data_dir: Path | None) -> Access:
    """The API that a command means."""
    return find(data_dir_of(data_dir))


def submit(
    instruction: Annotated[str, typer.Argument(help="What to do; `-` reads it from stdin.")],
    repo: Annotated[Path | None, typer.Option(help="A folder that becomes the workspace; .gitignore counts.")] = None,
    file: Annotated[list[str] | None, typer.Option(metavar="SRC[:DEST]", help="A file for the workspace.")] = None,
    check: Annotated[
        list[str] | None, typer.Option(metavar="CMD", help="A command that must exit with 0 before the end.")
    ] = None,
    tier: Annotated[str, typer.Option(help="auto, fast, full, or replay.")] = "auto",
    recording: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --tier replay: the recording to play, by its name.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N", help="tokens, cost_micro, wall_s, turns, parallel, review_rounds, approval_s."),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=WORD", help="allow, ask (a person before each call) or deny a tool: shell=ask."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST[:PORT]", help="A host that commands may reach: pypi.org, *.example.org:443."),
    ] = None,
    template: Annotated[
        str | None, typer.Option(metavar="NAME", help="What programs the sandbox has; `longhaul template list`.")
    ] = None,
    follow_it: Annotated[bool, typer.Option("--watch", help="Show the work until its end.")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key never starts a second task.")] = None,
    as_json: AsJson = False,
    data_dir: DataDirOption = None,
) -> None:
    """Submit a task. With --watch the exit code is 0 only where it was completed."""
    with guarded():
        access = access_of(data_dir)
        text = sys.stdin.read() if instruction == "-" else instruction
        with access.client() as client:
            built = spec.build(
                client,
                text,
                repo=repo,
                files=file or (),
                checks=check or (),
                tier=tier,
                limits=limit or (),
                tools=tool or (),
                allow=allow or (),
                template=template,
                recording=recording,
            )
            view = _submitted(client, built, idempotency_key)
        if follow_it:
            follow.attached(access, view.id, as_json=as_json)
        hint = runnable(f"Watch it: longhaul watch {view.id}")
        typer.echo(view.model_dump_json(indent=1) if as_json else f"{view.id}\n{hint}")


def _submitted(client: Client, built: TaskSpec, idempotency_key: str | None) -> TaskView:
    try:
        return client.submit(built, idempotency_key)
    except KeyboardInterrupt:
        typer.echo(runnable("\nInterrupted. Where the task was accepted already, `longhaul list` shows it."), err=True)
        raise typer.Exit(exits.INTERRUPTED) from None


def watch(task: Task, as_json: AsJson = False, data_dir: DataDirOption = None) -> None:
    """Show a task from its first event to its end. Ctrl-C leaves the task alone."""
    with guarded():
        follow.attached(access_of(data_dir), task, as_json=as_json)


def get(task: Task, as_json: AsJson = False, data_dir: DataDirOption = None) -> None:
    """Show a task as it is now."""
    with guarded(), access_of(data_dir).client() as client:
        view = client.get(task)
        if as_json:
            typer.echo(view.model_dump_json(indent=1))
            return
        waiting = f" for {awaited(view.waiting_for, view.queue_position)}" if view.waiting_for else ""
        reason = _reason(view)
        typer.echo(f"{view.id}  {view.status.value}{waiting}{reason}")
        typer.echo(f"  {one_line(view.instruction)}")
        for step in view.steps:
            typer.echo(f"  {step.state:<10} {step.id}: {one_line(step.title)}")
        for agent in view.agents:
            if agent.state == "waiting":
                typer.echo(f"  {agent.role.value} of {agent.step}: {one_line(agent.activity, 300)}")
        typer.echo(f"  {count(view.turns, 'turn')}, {spent(view.usage)}")
        if view.error:
            typer.echo(f"  {view.error.code.value}: {one_line(view.error.detail, 600)}")


def list_tasks(
    status: Annotated[list[TaskStatus] | None, typer.Option(help="Only tasks of this status; may be repeated.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, newest first.")] = 20,
    as_json: AsJson = False,
    data_dir: DataDirOption = None,
) -> None:
    """List tasks, newest first."""
    with guarded(), access_of(data_dir).client() as client:
        page = client.list(status or (), limit=limit)
        if as_json:
            typer.echo(page.model_dump_json(indent=1))
            return
        typer.echo(_ROW.format("task", "status", "created", "turns", "tokens", "instruction"))
        for task in page.data:
            typer.echo(_row(task))


def _reason(task: TaskSummary) -> str:
    return f" ({task.stop_reason.value})" if task.stop_reason and task.status is TaskStatus.FAILED else ""


def _row(task: TaskSummary) -> str:
    created = task.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    figures = (task.turns, f"{task.usage.tokens:,}")
    return _ROW.format(task.id, task.status.value + _reason(task), created, *figures, one_line(task.instruction, 60))


def result(task: Task, as_json: AsJson = False, data_dir: DataDirOption = None) -> None:
    """Show what an ended task came to. Exit code 0 only where it was completed."""
    with guarded():
        ended = follow.settled(access_of(data_dir), task)
        if as_json:
            typer.echo(ended.model_dump_json(indent=1))
        else:
            follow.show(ended, Console())
        raise typer.Exit(follow.exit_code(ended))


def cancel(
    task: Task,
    wait: Annotated[float, typer.Option(min=0, max=60, help="Seconds to wait for the end.")] = 30.0,
    as_json: AsJson = False,
    data_dir: DataDirOption = None,
) -> None:
    """Cancel a task: nothing of it runs any more once it says `cancelled`."""
    with guarded(), access_of(data_dir).client() as client:
        view = client.cancel(task, wait_s=wait or None)
        typer.echo(view.model_dump_json(indent=1) if as_json else f"{view.id}  {view.status.value}")


def events(
    task: Task,
    after: Annotated[int, typer.Option(min=0, help="Only events behind this number.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Print a task's events so far, each with its number."""
    with guarded(), access_of(data_dir).client() as client:
        at: int | None = after
        while at is not None:
            page = client.events(task, at)
            for event in page.data:
                if as_json:
                    typer.echo(event.model_dump_json())
                    continue
                words = " / ".join(line.text.strip() for line in lines_of(event))
                words = words or (f"[{event.step_id}]" if event.step_id else "")
                line = f"{event.seq:>5}  {event.at.astimezone():%H:%M:%S}  {event.data.type:<20} {words}"
                typer.echo(line.rstrip())
            at = page.next_after


def artifacts(
    task: Task,
    download: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write them there; each digest is checked.")
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDirOption = None,
) -> None:
    """List what a task's team kept, or download it."""
    with guarded(), access_of(data_dir).client() as client:
        kept = client.artifacts(task)
        if as_json:
            typer.echo(json.dumps([json.loads(a.model_dump_json()) for a in kept], indent=1))
        elif not kept:
            typer.echo("Nothing was kept. A team keeps the files that the instruction asks for.")
        for artifact in kept:
            if not as_json:
                typer.echo(f"{one_line(artifact.path)}  {artifact.bytes} bytes  sha256 {artifact.sha256}")
            if download is not None:
                place = _inside(download, artifact.path)
                client.download(artifact.id, place)
                typer.echo(f"  -> {one_line(str(place), 4_096)}", err=as_json)


def _inside(folder: Path, path: str) -> Path:
    """Where an artifact goes: its own path below the folder. Its parts are a team's words, so none may lead out."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise exits.CliError(f"{one_line(path)}: this artifact's path leads out of {folder}; it was not downloaded.")
    place = folder.joinpath(*parts)
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
