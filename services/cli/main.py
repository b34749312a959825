"""The ``longhaul`` command: `main` builds the application out of the groups of commands."""

import importlib.util
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def build() -> "typer.Typer":
    """The application with every command. What it takes is loaded here, where `main` can be interrupted in peace."""
    import typer

    from services.cli import stack

    app = typer.Typer(
        name="longhaul",
        help="A hosted harness for long-horizon agent teams.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    stack.register(app)
    groups = ("tasks", "approvals", "checkpoints", "recordings", "templates")
    for group in (f"services.cli.{name}" for name in groups):
        if importlib.util.find_spec(group):
            importlib.import_module(group).register(app)
    return app


def main() -> None:
    """Run the command line."""
    _in_utf8()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no UTF-8 is no reason to fail
    try:
        build()()
    except KeyboardInterrupt:  # while the modules were loaded; the commands have answers of their own
        sys.exit(130)


def _in_utf8() -> None:
    """Under a locale of another encoding start anew in Python's UTF-8 mode, as our other processes run: names of files
    mean the same everywhere then. What is printed stays in the terminal's own encoding."""
    if sys.flags.utf8_mode or sys.getfilesystemencoding() == "utf-8":
        return
    terminal = {"PYTHONIOENCODING": f"{sys.stdout.encoding}:replace"} if sys.stdout else {}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **terminal, "PYTHONUTF8": "1"})


if __name__ == "__main__":
    main()
