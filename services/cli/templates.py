"""The commands on sandboxes' templates: build, list, prune."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from agents.contracts.sandbox import DEFAULT_TEMPLATE
from services.cli import exits
from services.cli.exits import CliError, guarded
from services.cli.stack import DataDirOption, data_dir_of, template_dir
from services.cli.tasks import AsJson
from services.cli.words import count
from services.sandbox.supervisor import build as supervisor
from services.sandbox.template import Template, link_of
from services.sandbox.templates import build as builder
from services.sandbox.templates import shelf
from services.sandbox.templates.recipe import Recipe, TemplateError, files, find
from services.stack.claim import is_mine, no_entry

_ROW = "{:<20} {:<10} {:<18} {:>10} {:>9}  {}"


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="What programs sandboxes can have: build, list and prune templates.")
    for command in (build, prune):
        group.command()(command)
    group.command("list")(list_templates)
    app.add_typer(group, name="template")


def build(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Which one.")] = DEFAULT_TEMPLATE,
    every: Annotated[bool, typer.Option("--all", help="Build all that have a recipe.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build a template where it is missing or old; new sandboxes have it from then on."""
    with _talking():
        folder = _writable()
        names = list(files(folder)) if every else [name]
        built = [_built(folder, find(folder, one), quiet=as_json) for one in names]
        _supervisor(folder, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(built, indent=1))


def _built(folder: Path, recipe: Recipe, *, quiet: bool) -> dict[str, object]:
    at = Template(folder, link_of(recipe.name)).at
    made = at.name != recipe.digest and not (folder / recipe.digest).is_dir()
    if made and not quiet:
        typer.echo(f"Building the sandboxes' template {recipe.name} in {folder} …")
    return {"name": recipe.name, "digest": builder.build(folder, recipe).name, "made": made}


def _supervisor(folder: Path, *, quiet: bool) -> None:
    """What sandboxes need beside programs."""
    if not supervisor.program(folder).exists() and not quiet:
        typer.echo(f"Building the sandboxes' supervisor in {folder} …")
    supervisor.build(folder)


def list_templates(as_json: AsJson = False, data_dir: DataDirOption = None) -> None:
    """List the templates that have a recipe, and which of them are built."""
    with _talking():
        rows = shelf.rows(_folder(), _runner(data_dir))
    if as_json:
        typer.echo(json.dumps([row.model_dump(mode="json") for row in rows], indent=1))
        return
    typer.echo(_ROW.format("NAME", "STATE", "BUILD", "SIZE", "SANDBOXES", "FOR"))
    for row in rows:
        size = f"{row.bytes / 1e6:,.0f} MB" if row.digest else ""
        typer.echo(_ROW.format(row.name, row.state, row.digest, size, row.used_by, row.backends).rstrip())
        typer.echo(f"    {row.detail or row.description}")


def prune(as_json: AsJson = False, data_dir: DataDirOption = None) -> None:
    """Remove the builds that no recipe and no sandbox uses any more."""
    with _talking():
        done = shelf.prune(_writable(), _runner(data_dir))
    if as_json:
        typer.echo(done.model_dump_json(indent=1))
        return
    freed = sum(done.removed.values()) / 1e6
    typer.echo(f"Removed {count(len(done.removed), 'build')} ({freed:,.0f} MB).")
    if done.in_use:
        typer.echo(f"Sandboxes still have {', '.join(done.in_use)}.")


def _folder() -> Path:
    return template_dir().absolute()


def _writable() -> Path:
    folder = _folder()
    if not is_mine(folder):
        raise CliError(no_entry(folder, "LONGHAUL_RUNNER_TEMPLATE_DIR"), exits.STACK)
    return folder


def _runner(data_dir: Path | None) -> Path:
    """The data directory of a stack's runner."""
    return data_dir_of(data_dir).sandboxes


@contextmanager
def _talking() -> Iterator[None]:
    with guarded():
        try:
            yield
        except (TemplateError, supervisor.BuildError) as fault:
            raise CliError(str(fault), exits.STACK) from None
