"""Whether the sandboxes' template, which all stacks of a user share, has what this checkout needs."""

from contextlib import suppress
from pathlib import Path

from services.sandbox.namespace import own_copy
from services.sandbox.supervisor.build import program
from services.sandbox.template import Template
from services.stack.errors import StackRefused
from services.stack.layout import DataDir


def supervisor(template: Path, data: DataDir) -> Path | None:
    """The sandboxes' supervisor as these sources make it: in the template, or the copy that a stack keeps of it."""
    built = program(template)
    return next((path for path in (built, own_copy(data.sandboxes, built)) if path.is_file()), None)


def check_template(template: Path, data: DataDir) -> None:
    """Refuse to start what could never become ready.

    Raises:
        StackRefused: with what to do.
    """
    if not Template(template).at.is_dir():
        raise StackRefused(f"The sandboxes' template is missing from {template}: run `make setup`.")
    if supervisor(template, data) is None:
        raise StackRefused(f"The sandboxes' supervisor is missing from {template}: run `make setup`.")
    with suppress(OSError):  # it is in use: others are removed first
        program(template).touch()
