"""`record` and `replay`: a past task as a file, and that file against today's code."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from agents.contracts.ids import Role
from services.cli.connect import find
from services.cli.exits import DONE, TASK_FAILED, CliError, guarded
from services.cli.replayed import lines
from services.cli.stack import DataDirOption, data_dir_of
from services.cli.words import count
from services.prompts import prompts, prompts_of
from services.recording.file import Unreadable, read
from services.stack.program import runnable
from workflows.replay.against import against
from workflows.replay.differences import Replay

AsJson = Annotated[bool, typer.Option("--json", help="JSON for scripts, on stdout.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(record)
    app.command()(replay)


def record(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task's id.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to; `-` is stdout. [TASK.json]")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The name under which the replay tier plays it; the task's id otherwise.")
    ] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Write a task into a file: for `longhaul replay`, and for the replay tier."""
    with guarded():
        with find(data_dir_of(data_dir)).client() as client:
            body = client.recording(task)
        made = json.loads(body)
        if name is not None:
            made["name"] = name
            body = json.dumps(made, indent=1, ensure_ascii=False).encode() + b"\n"
        if str(output) == "-":
            typer.echo(body, nl=False)
            return
        path = output or Path(f"{task}.json")
        _write(path, body)
        typer.echo(_made(path, made, len(body)))


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording; `longhaul record` makes it.")],
    prompts_dir: Annotated[
        Path | None,
        typer.Option(
            "--prompts", metavar="DIR", help="Prompts to try: planner.md, executor.md, reviewer.md; others are today's."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play a recorded task against today's code: says at which call it differs, and how. Needs no stack. Exit code 0
    where nothing differs, 1 where something does, 2 where the file or the prompts cannot be read."""
    with guarded():
        played = _play(file, prompts_dir)
        if as_json:
            typer.echo(played.model_dump_json(indent=1))
        else:
            for line in lines(played, file):
                typer.echo(line)
        raise typer.Exit(DONE if played.same else TASK_FAILED)


def _play(file: Path, folder: Path | None) -> Replay:
    if not file.exists():
        raise CliError(f"There is no file {file}. `longhaul record TASK` makes one.")
    try:
        recording, task = read(file)
        return asyncio.run(against(recording, task, _prompts(folder)))
    except Unreadable as fault:
        raise CliError(str(fault)) from None
    except (LookupError, ValueError) as fault:
        raise CliError(f"{file} is a damaged recording: it contradicts itself ({fault!r})") from fault


def _prompts(folder: Path | None) -> dict[Role, str]:
    if folder is None:
        return prompts()
    try:
        return prompts_of(folder)
    except UnicodeDecodeError as fault:
        raise CliError(f"--prompts {folder}: a prompt is not UTF-8 text ({fault})") from None


def _write(path: Path, body: bytes) -> None:
    """Beside its place, then there: never half a file."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(body)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _made(path: Path, made: dict[str, object], size: int) -> str:
    task = made["task"]
    assert isinstance(task, dict)
    entries = made["entries"]
    assert isinstance(entries, list)
    said = [f"{path}  {size / 1024:.0f} KiB: {count(len(entries), 'call')} of {count(len(task['agents']), 'agent')}"]
    if task["status"] not in ("completed", "failed", "cancelled"):
        said.append(f"The task has not ended (it is {task['status']}): this is what there is of it so far.")
    if task["redactions"]:
        said.append(f"Taken out because it looked like a secret: {count(task['redactions'], 'place')}.")
    said += [f"Note: {note}" for note in task.get("notes", ())]
    said += [
        "It holds the instruction, commands and their output: read it before you give it away.",
        runnable(f"Compare it with today's code:  longhaul replay {path}"),
    ]
    return "\n".join(said)
