"""The prompts of the roles, read from their files."""

from pathlib import Path

from agents.contracts.ids import Role
from agents.roles import ROLES


def prompts() -> dict[Role, str]:
    """Our own."""
    return {role: spec.prompt_file.read_text(encoding="utf-8") for role, spec in ROLES.items()}


def prompts_of(folder: Path) -> dict[Role, str]:
    """Those of a folder; of a role without a file there, our own.

    Raises:
        FileNotFoundError: there is no prompt in it at all; says what is expected.
        UnicodeDecodeError, OSError: a file that cannot be read.
    """
    files = {role: folder / spec.prompt_file.name for role, spec in ROLES.items()}
    found = {role: file.read_text(encoding="utf-8") for role, file in files.items() if file.is_file()}
    if not found:
        names = ", ".join(file.name for file in files.values())
        raise FileNotFoundError(f"{folder} holds no prompt: at least one of {names} is expected there")
    return prompts() | found
