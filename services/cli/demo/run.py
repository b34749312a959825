"""`longhaul demo`: teams at work on a running stack or one of its own; all demos at once, or one."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from agents.contracts.task import TaskResult
from services.cli import exits, follow
from services.cli.connect import Access, find
from services.cli.demo import own_stack
from services.cli.demo.catalogue import Demo, chosen
from services.cli.demo.progress import LEFT, Progress, interrupted
from services.cli.demo.report import report
from services.cli.live import Watched
from services.cli.stack import DEFAULT_PORT, DataDirOption, PortOption, data_dir_of
from services.cli.words import count
from services.stack.layout import DataDir
from services.stack.program import runnable

TRUTH = "Only the models' words are replayed from recordings; sandboxes, commands, checks and files are real."
OWN_STACK = "longhaul up --detach    # first: this demo's stack stops now, its data stays"


def demo(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One demo; without it all run at once.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object at the end, nothing else on stdout.")
    ] = False,
    data_dir: DataDirOption = None,
    port: PortOption = DEFAULT_PORT,
) -> None:
    """Watch teams at work: a repair, an analysis, a 3D part. Exit code 0 only if every task was completed."""
    progress = Progress()
    began = time.monotonic()
    console = Console(stderr=as_json)

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    with exits.guarded(), _terminated_like_ctrl_c():
        demos = chosen(name)
        try:
            with _stack(data_dir_of(data_dir), port, progress, say) as access:
                results = _play(access, demos, progress, console, quiet=as_json)
        except KeyboardInterrupt:
            say(interrupted(progress))
            raise typer.Exit(exits.INTERRUPTED) from None
        if as_json:
            seconds = time.monotonic() - began
            told = report(zip(progress.tasks, results, strict=True), seconds)
            typer.echo(told.model_dump_json(indent=1))
        raise typer.Exit(max(map(follow.exit_code, results)))


@contextmanager
def _stack(data: DataDir, port: int, progress: Progress, say: own_stack.Say) -> Iterator[Access]:
    """The stack of the environment, the running one, or one for now."""
    if os.environ.get("LONGHAUL_URL") or data.lock_holder() is not None:
        with own_stack.shared(data, say) as access, _looking(progress, access):
            yield access
        return
    say(f"Starting a stack in {data.root} (the first time takes longer) …")
    began, at = time.monotonic(), datetime.now(UTC)
    own = own_stack.OwnStack(data, port)
    try:
        mine = own.comes_up()
        if mine:
            say(f"The stack is up after {time.monotonic() - began:.1f} s.")
        progress.own = at if mine else None
        with nullcontext(find(data)) if mine else own_stack.shared(data, say) as access, _looking(progress, access):
            yield access
    finally:
        if progress.others:
            own.leave()
            say(runnable(LEFT))
        else:
            own.stop(say)


@contextmanager
def _looking(progress: Progress, access: Access) -> Iterator[None]:
    """However it ends, see what still runs then."""
    try:
        yield
    finally:
        progress.look(access)


def _play(access: Access, demos: list[Demo], progress: Progress, console: Console, *, quiet: bool) -> list[TaskResult]:
    console.print(TRUTH, highlight=False, soft_wrap=True)
    with access.client() as client:
        for each in demos:
            progress.tasks[each.name] = client.submit(each.spec(client)).id
    if quiet:
        results = [follow.quietly(access, task) for task in progress.tasks.values()]
    else:
        tasks = [Watched(task, name) for name, task in progress.tasks.items()]
        results = follow.all_to_end(access, tasks, console, hints=lambda: _hints(progress, access))
    kept = sum(verify(access, result) for result in results)
    console.print(f"Read back: {count(kept, 'artifact')}, each with the right sha256.", highlight=False, soft_wrap=True)
    return results


def _hints(progress: Progress, access: Access) -> list[str]:
    progress.look(access)
    return [OWN_STACK] if progress.own and not progress.others else []


def verify(access: Access, result: TaskResult) -> int:
    """Download every artifact; the client refuses bytes that are not those that were kept. How many there are."""
    with tempfile.TemporaryDirectory(prefix="longhaul-demo-") as folder, access.client() as client:
        for number, artifact in enumerate(result.artifacts):
            client.download(artifact.id, Path(folder) / str(number))
    return len(result.artifacts)


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
