"""The command on checkpoints: list them, what is in one, what changed up to one, a file of one."""

import json
import sys
from typing import Annotated

import typer

from agents.contracts.checkpoint import Checkpoint, CheckpointEntry
from agents.contracts.errors import ErrorCode
from agents.contracts.sandbox import StateReport, StateRow
from services.cli.exits import CliError, guarded
from services.cli.stack import DataDirOption
from services.cli.tasks import AsJson, Task, access_of
from services.cli.words import count, one_line
from services.client import Client, LonghaulApiError

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(checkpoints)


def checkpoints(
    task: Task,
    checkpoint: Annotated[str | None, typer.Argument(metavar="[ID]", help="Show what is in this one.")] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show what changed since the one before.")] = False,
    since: Annotated[str | None, typer.Option(metavar="ID", help="Show what changed since this one.")] = None,
    file: Annotated[str | None, typer.Option(metavar="PATH", help="Write a file's bytes to stdout.")] = None,
    as_json: AsJson = False,
    data_dir: DataDirOption = None,
) -> None:
    """List the workspaces that were kept as steps were handed in, or look into one."""
    with guarded(), access_of(data_dir).client() as client:
        if checkpoint is None:
            if diff or since or file:
                raise CliError("Name the checkpoint to look into: longhaul checkpoints TASK ID")
            _list(client, task, as_json)
        elif file is not None:
            _file(client, task, checkpoint, file)
        elif diff or since:
            _diff(client, task, checkpoint, since, as_json)
        else:
            _files(client, task, checkpoint, as_json)


def _file(client: Client, task: str, checkpoint: str, path: str) -> None:
    try:
        content = client.checkpoint_file(task, checkpoint, path)
    except LonghaulApiError as fault:
        if fault.code is not ErrorCode.FILE_NOT_FOUND:
            raise
        raise CliError(f"{fault}\n`longhaul checkpoints {task} {checkpoint}` lists them.") from None
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _list(client: Client, task: str, as_json: bool) -> None:
    kept = client.checkpoints(task)
    if as_json:
        typer.echo(json.dumps([one.model_dump(mode="json") for one in kept], indent=1))
        return
    if not kept:
        typer.echo("Nothing was kept yet. A workspace is kept each time a step is handed in.")
    for one in kept:
        typer.echo("\n".join([_line(one), *state_lines(one.state)]))


def _line(one: Checkpoint) -> str:
    where = f"[{one.step_id}] round {one.round}"
    size = f"{count(one.files, 'file')}, {one.bytes:,} bytes, {one.added_bytes:,} of them stored anew"
    return f"{one.id}  {one.created_at.astimezone():%Y-%m-%d %H:%M:%S}  {where}  {size}"


def state_lines(state: StateReport | None) -> list[str]:
    """What was not as it should be; nothing where all was."""
    if state is None:
        return []
    if state.fault:
        return [f"    state not known: {one_line(state.fault)}"]
    return [f"    {row.matter}: {_words(row)}" for row in state.rows if not row.clean]


def _words(row: StateRow) -> str:
    told = {
        "processes": f"{row.count} left over",
        "base": f"{count(row.count, 'file')} of the read-only base changed",
        "clock": "differs from the host's",
        "outside": f"{count(row.count, 'file')} outside the workspace, {row.bytes:,} bytes",
        "room": "the disk is nearly full",
    }
    return f"{told[row.matter]} ({one_line(row.detail)})"


def _files(client: Client, task: str, checkpoint: str, as_json: bool) -> None:
    after: str | None = ""
    while after is not None:
        page = client.checkpoint_files(task, checkpoint, after=after)
        for entry in page.data:
            typer.echo(entry.model_dump_json() if as_json else _entry(entry))
        after = page.next_after


def _entry(entry: CheckpointEntry) -> str:
    name = one_line(entry.path, 4_096)
    shown = {"folder": f"{name}/", "link": f"{name} -> {one_line(entry.target or '', 4_096)}"}.get(entry.kind, name)
    return f"{entry.mode:03o}  {entry.bytes:>12,}  {entry.modified_at.astimezone():%Y-%m-%d %H:%M:%S}  {shown}"


def _diff(client: Client, task: str, checkpoint: str, since: str | None, as_json: bool) -> None:
    found = client.checkpoint_diff(task, checkpoint, since)
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    for change in found.data:
        typer.echo(f"{_SIGNS[change.change]} {one_line(change.path, 4_096)}")
    if found.total > len(found.data):
        typer.echo(f"… {found.total - len(found.data)} more; --json and the API give them by pages of 1,000")
    if not found.data:
        typer.echo("Nothing changed.")
