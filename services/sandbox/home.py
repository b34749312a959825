"""One sandbox's folder on disk: where each thing is. Only `workspace` and `private` are ever seen from inside."""

from dataclasses import dataclass
from pathlib import Path

from agents.contracts.ids import short_digest
from services.sandbox.records import Meta, read

FOLDERS = ("workspace", "private", "staging", "journal", "execs")
OWNED = ("workspace", "private", "staging")
"""The folders that belong to the sandbox's own user; `staging` is not mounted, files are made there and renamed."""


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of a sandbox, and its meta record as it was made."""

    root: Path
    meta: Meta

    @property
    def workspace(self) -> Path:
        """The task's files, at ``/workspace`` inside."""
        return self.root / "workspace"

    @property
    def private(self) -> Path:
        """/tmp inside, with $HOME in it: what outlives a command and is not part of the workspace."""
        return self.root / "private"

    @property
    def staging(self) -> Path:
        """Where files are made before they are renamed into the workspace; not seen from inside."""
        return self.root / "staging"

    @property
    def seen(self) -> Path:
        """What the last snapshot saw of the workspace."""
        return self.root / "seen.bin"

    @property
    def fences(self) -> Path:
        """The record of the highest fences."""
        return self.root / "fences.json"

    @property
    def gone(self) -> Path:
        """Its presence means: being destroyed, start nothing."""
        return self.root / "gone"

    def exec_folder(self, exec_id: str) -> Path:
        """The journal of one command."""
        return self.exec_named(short_digest(exec_id))

    def exec_named(self, name: str) -> Path:
        """The journal of one command, by the name that its supervisor knows."""
        return self.root / "execs" / name

    def journal(self, key: str) -> Path:
        """The journal of one change of files."""
        return self.root / "journal" / f"{short_digest(key)}.json"

    def exec_folders(self) -> list[Path]:
        """Every exec that was ever journaled."""
        return [path for path in (self.root / "execs").iterdir() if path.is_dir()]


def load(root: Path) -> Home | None:
    """The sandbox at `root`, or None where there is none (or it was never finished)."""
    meta = read(root / "meta.json", Meta)
    return None if meta is None else Home(root, meta)
