"""The ``longhaul`` command: `main` builds the application out of the groups of commands."""

import importlib.util
import io
import sys

import typer

from services.cli import stack


def build() -> typer.Typer:
    """The application with every command."""
    app = typer.Typer(
        name="longhaul",
        help="A hosted harness for long-horizon agent teams.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    stack.register(app)
    if importlib.util.find_spec("services.cli.tasks"):
        importlib.import_module("services.cli.tasks").register(app)
    return app


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no UTF-8 is no reason to fail
    build()()


if __name__ == "__main__":
    main()
