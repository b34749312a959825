"""`longhaul demo`: code repair by a team, on a running stack or one of its own."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import Console

from agents.contracts.task import StopReason, TaskResult, TaskSpec, TaskStatus
from services.cli import exits, follow
from services.cli.connect import Access, find, local
from services.cli.demo import own_stack
from services.cli.spec import uploaded
from services.cli.stack import DEFAULT_PORT, DataDirOption, PortOption, data_dir_of
from services.cli.words import count
from services.stack.layout import DataDir

FOLDER = Path(__file__).parent / "code_repair"
NAME = "code_repair"
CHECK = "python -m pytest -q"


class DemoArtifact(BaseModel):
    """A kept file whose digest was checked by downloading it."""

    path: str
    sha256: str
    bytes: int


class DemoTask(BaseModel):
    """One task of the demo."""

    id: str
    name: str
    status: TaskStatus
    stop_reason: StopReason
    turns: int
    artifacts: list[DemoArtifact]


class DemoReport(BaseModel):
    """The object that ``longhaul demo --json`` prints."""

    tasks: list[DemoTask]
    seconds: float


@dataclass
class _Progress:
    """What an interruption must tell of."""

    task_id: str = ""
    own: bool = False


def demo(
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object at the end, nothing else on stdout.")
    ] = False,
    data_dir: DataDirOption = None,
    port: PortOption = DEFAULT_PORT,
) -> None:
    """Watch a team repair a small package: all real but the model's words. Exit code 0 only if completed."""
    progress = _Progress()
    began = time.monotonic()
    console = Console(stderr=as_json)
    with exits.guarded(), _terminated_like_ctrl_c():
        try:
            with _stack(data_dir_of(data_dir), port, progress, console) as access:
                result = _play(access, progress, console, quiet=as_json)
        except KeyboardInterrupt:
            console.print(_interrupted(progress), highlight=False, markup=False, soft_wrap=True)
            raise typer.Exit(exits.INTERRUPTED) from None
        report = DemoReport(tasks=[_task(result)], seconds=round(time.monotonic() - began, 3))
        if as_json:
            typer.echo(report.model_dump_json(indent=1))
        raise typer.Exit(follow.exit_code(result))


@contextmanager
def _stack(data: DataDir, port: int, progress: _Progress, console: Console) -> Iterator[Access]:
    """The stack of the environment, the running one, or one for now."""
    if os.environ.get("LONGHAUL_URL") or local(data):
        access = find(data)
        console.print(f"Using the stack at {access.url}.", highlight=False, soft_wrap=True)
        yield access
        return

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    say(f"Starting a stack in {data.root} (the first time takes longer) …")
    progress.own = True
    began = time.monotonic()
    with own_stack.running(data, port, say):
        say(f"The stack is up after {time.monotonic() - began:.1f} s.")
        mine = local(data)
        if mine is None:
            raise exits.CliError("The stack went away as soon as it was up; see `longhaul doctor`.", exits.STACK)
        yield mine


def _play(access: Access, progress: _Progress, console: Console, *, quiet: bool) -> TaskResult:
    console.print(
        "Only the model's words are replayed from a recording; sandboxes, commands, tests and files are real.",
        highlight=False,
        soft_wrap=True,
    )
    with access.client() as client:
        spec = TaskSpec(
            instruction=instruction(),
            tier="replay",
            repo=uploaded(client, FOLDER / "workspace"),
            checks=[CHECK],
            metadata={"demo": NAME},
        )
        progress.task_id = client.submit(spec).id
    hints = ["longhaul up --detach    # first: this demo's stack stops now, its data stays"] if progress.own else []
    if quiet:
        result = follow.quietly(access, progress.task_id)
    else:
        result = follow.to_end(access, progress.task_id, console, hints=hints)
    verify(access, result)
    kept = count(len(result.artifacts), "artifact")
    console.print(f"Read back: {kept}, each with the right sha256.", highlight=False, soft_wrap=True)
    return result


def instruction() -> str:
    """The demo's instruction; its digest selects the recording."""
    return (FOLDER / "instruction.md").read_text(encoding="utf-8").strip()


def verify(access: Access, result: TaskResult) -> None:
    """Download every artifact; the client refuses bytes that are not those that were kept."""
    with tempfile.TemporaryDirectory(prefix="longhaul-demo-") as folder, access.client() as client:
        for number, artifact in enumerate(result.artifacts):
            client.download(artifact.id, Path(folder) / str(number))


def _task(result: TaskResult) -> DemoTask:
    kept = [DemoArtifact(path=a.path, sha256=a.sha256, bytes=a.bytes) for a in result.artifacts]
    return DemoTask(
        id=result.id,
        name=NAME,
        status=result.status,
        stop_reason=result.stop_reason,
        turns=result.turns,
        artifacts=kept,
    )


def _interrupted(progress: _Progress) -> str:
    task = progress.task_id
    if not task:
        return "\nInterrupted before a task was submitted; nothing goes on."
    if not progress.own:
        return follow.INTERRUPTED_HINT.format(task=task)
    return (
        f"\nInterrupted. The stack of this demo is stopped, and the task rests with it.\n"
        f"  let it go on:  longhaul up, then longhaul watch {task}\n"
        f"  end it:        longhaul up, then longhaul cancel {task}"
    )


@contextmanager
def _terminated_like_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP end a demo as Ctrl-C does, so that its stack never outlives it."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    old = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
