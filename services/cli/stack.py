"""Commands of the embedded stack: up, down, status, doctor."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from services.cli.starting import Launching
from services.stack import doctor as checks
from services.stack.errors import StackError
from services.stack.launcher import FOREGROUND_HINT, Launcher, Options, check
from services.stack.layout import DataDir, default_data_dir
from services.stack.program import runnable
from services.stack.status import report, table

DEFAULT_PORT = 8420
DOWN_WITHIN_S = 45.0

DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar="LONGHAUL_DATA_DIR",
        help="Where everything is kept.",
        show_default="/var/lib/longhaul as root, else .longhaul in the checkout, or ~/.local/share/longhaul",
    ),
]
PortOption = Annotated[
    int,
    typer.Option("--port", envvar="LONGHAUL_PORT", min=0, max=65535, help="Port of the API; 0 takes any free one."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(up)
    app.command()(down)
    app.command()(status)
    app.command()(doctor)
    app.command()(key)


def template_dir() -> Path:
    """Where the sandbox's template is: one for all stacks of this user."""
    return Path(os.environ.get("LONGHAUL_RUNNER_TEMPLATE_DIR") or default_data_dir() / "template")


def data_dir_of(option: Path | None) -> DataDir:
    """The data directory a command means."""
    return DataDir(option or default_data_dir())


def up(
    data_dir: DataDirOption = None,
    port: PortOption = DEFAULT_PORT,
    only: Annotated[Literal["servers"] | None, typer.Option(help="Start the four servers alone.")] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when it is up; stop it with `longhaul down`.")
    ] = False,
    owner_fd: Annotated[int, typer.Option(hidden=True)] = -1,
) -> None:
    """Start everything and stay until Ctrl-C (a second one hurries)."""
    data, template = data_dir_of(data_dir), template_dir().absolute()
    options = Options(data.root, port, template, dict(os.environ), only == "servers", owner_fd)
    if detach:
        _or_exit(lambda: _detached(data, options))
        return
    typer.echo(f"Starting Longhaul in {data.root}")
    _or_exit(lambda: asyncio.run(_launch(options)))
    typer.echo("Stopped.")


def down(data_dir: DataDirOption = None) -> None:
    """Stop the stack that runs on a data directory."""
    data = data_dir_of(data_dir)
    holder = data.lock_holder()
    if holder is None:
        typer.echo(f"Nothing runs on {data.root}.")
        return
    typer.echo(f"Stopping the stack on {data.root} …")
    with suppress(ProcessLookupError):  # it has just ended by itself
        os.kill(holder, signal.SIGTERM)
    deadline = time.monotonic() + DOWN_WITHIN_S
    while data.lock_holder() == holder:
        if time.monotonic() > deadline:
            _fail(
                StackError(
                    f"Process {holder} has not stopped in {DOWN_WITHIN_S:.0f} s. Its log: {data.log('launcher')}"
                )
            )
        time.sleep(0.1)
    typer.echo("Stopped.")


def status(
    data_dir: DataDirOption = None, as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False
) -> None:
    """Show each process, its state, age, restarts and memory, and the ports. Exit code 1 where nothing runs."""
    data = data_dir_of(data_dir)
    found = report(data)
    typer.echo(found.model_dump_json(indent=1) if as_json else "\n".join(table(found)))
    if not found.running:
        raise typer.Exit(1)


def doctor(data_dir: DataDirOption = None, port: PortOption = DEFAULT_PORT) -> None:
    """Look at everything the stack needs from this machine. Exit code 1 where something is missing."""
    findings = checks.examine(data_dir_of(data_dir), port, template_dir())
    for finding in findings:
        mark = "ok  " if finding.ok else "FAIL" if finding.needed else "no  "
        typer.echo(f"{mark}  {finding.name}: {finding.detail}")
        if not finding.ok:
            typer.echo("      " + finding.remedy.replace("\n", "\n      "))
    if any(finding.needed and not finding.ok for finding in findings):
        raise typer.Exit(1)


def key(data_dir: DataDirOption = None) -> None:
    """Print the first API key of a stack (tenant `default`)."""
    data = data_dir_of(data_dir)
    if not data.root.joinpath("secrets.json").exists():
        _fail(StackError(f"No stack was ever started on {data.root}. Start one with `longhaul up`."))
    typer.echo(data.secrets().api_key)


async def _launch(options: Options) -> None:
    await Launcher(options, _say).run()


def _say(line: str) -> None:
    with suppress(OSError):  # whoever read our output may be gone; the stack goes on
        typer.echo(line)


def _detached(data: DataDir, options: Options) -> None:
    check(options)
    only = ("--only", "servers") if options.servers_only else ()
    launching = Launching(data, ("--port", str(options.port), *only))
    try:
        code = launching.wait()
    except BaseException:  # nobody waits for it any more
        launching.process.terminate()
        launching.process.wait(DOWN_WITHIN_S)
        raise
    if code is not None:
        typer.echo(launching.said(), err=True, nl=False)
        raise typer.Exit(code or 1)
    typer.echo(launching.said().replace(FOREGROUND_HINT + "\n", ""), nl=False)
    typer.echo(runnable("It runs in the background: `longhaul status` shows it, `longhaul down` stops it."))


def _or_exit(work: Callable[[], None]) -> None:
    try:
        work()
    except StackError as error:
        _fail(error)
    except OSError as error:  # a data directory that cannot be written, a full disk
        _fail(StackError(str(error)))


def _fail(error: StackError) -> NoReturn:
    typer.echo(f"Error: {runnable(str(error))}", err=True)
    raise typer.Exit(error.exit_code)
