"""The demos there are. Each is a folder here (what is asked, workspace, checks) and a recording of the same name."""

from dataclasses import dataclass
from pathlib import Path

from agents.contracts.task import TaskSpec
from services.cli.exits import CliError
from services.cli.spec import uploaded
from services.client import Client

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Demo:
    """One demo, read from its folder."""

    name: str
    folder: Path

    @property
    def instruction(self) -> str:
        """What the team is asked; its digest selects the recording."""
        return (self.folder / "instruction.md").read_text(encoding="utf-8").strip()

    @property
    def workspace(self) -> Path:
        """What the team begins with."""
        return self.folder / "workspace"

    @property
    def checks(self) -> list[str]:
        """The task's own checks. They are not in the workspace, so nobody in it can change them."""
        return [_command(path) for path in sorted((self.folder / "checks").iterdir()) if path.suffix in (".sh", ".py")]

    def spec(self, client: Client) -> TaskSpec:
        """Upload the workspace and write the task."""
        return TaskSpec(
            instruction=self.instruction,
            tier="replay",
            repo=uploaded(client, self.workspace),
            checks=self.checks,
            metadata={"demo": self.name},
        )


def names() -> list[str]:
    """The names, in order."""
    return sorted(path.parent.name for path in HERE.glob("*/instruction.md"))


def chosen(name: str | None) -> list[Demo]:
    """The demo of a name, or all of them.

    Raises:
        CliError: there is none of that name; it lists those there are.
    """
    if name is not None and name not in names():
        raise CliError(f"There is no demo {name!r}. There are: {', '.join(names())}; without a name all of them run.")
    return [Demo(found, HERE / found) for found in names() if name in (None, found)]


def _command(path: Path) -> str:
    text = path.read_text(encoding="utf-8").strip()
    return text if path.suffix == ".sh" else f"python - <<'CHECK'\n{text}\nCHECK"
