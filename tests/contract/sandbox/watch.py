"""What can be seen of sandboxes without asking their runner: on this host, or through an engine."""

import contextlib
import os
from pathlib import Path
from typing import Any, Protocol

from docker.errors import DockerException

from services.sandbox.home import load
from services.sandbox.supervised.stop import first_process
from tests.support.engine import Engine

CHILDREN = "grep -lE '^PPid:.1$' /proc/[0-9]*/status"
LINES = (
    "for f in /proc/[0-9]*; do grep -q '^State:.Z' $f/status || { tr '\\0' '\\1' < $f/cmdline; echo \" $f/\"; }; done"
)


class Watch(Protocol):
    """One runner's sandboxes."""

    def supervisors(self) -> list[int]:
        """The pids of their first processes; of gVisor's, of what they run in."""
        ...

    def commands(self) -> list[int]:
        """The pids of those who watch over commands under way, one for each, as far as they are seen here."""
        ...

    def sleeping(self, mark: str) -> list[int]:
        """The pids of ``sleep MARK`` that this host does not see."""
        ...

    def kill(self, folder: Path) -> bool:
        """End what runs of the sandbox in a folder, as a crash does; False: nothing runs."""
        ...

    def runs(self, folder: Path) -> bool:
        """Whether the sandbox in a folder runs."""
        ...


class HostWatch:
    """Sandboxes of the namespace backend: processes of this host."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "sandboxes"

    def supervisors(self) -> list[int]:
        return [pid for folder in self._folder.glob("*") for pid in self._supervisor(folder)]

    def commands(self) -> list[int]:
        return [child for pid in self.supervisors() for child in children(pid)]

    def sleeping(self, mark: str) -> list[int]:
        return []

    def kill(self, folder: Path) -> bool:
        found = self._supervisor(folder)
        for pid in found:
            os.kill(pid, 9)
        return bool(found)

    def runs(self, folder: Path) -> bool:
        return bool(self._supervisor(folder))

    @staticmethod
    def _supervisor(folder: Path) -> list[int]:
        """The pid of the process that listens in a sandbox's folder, if one does."""
        fd = first_process(folder)
        if fd is None:
            return []
        try:
            told = Path(f"/proc/self/fdinfo/{fd}").read_text()
        finally:
            os.close(fd)
        return [pid for line in told.splitlines() if line.startswith("Pid:") and (pid := int(line.split()[1])) > 0]


class EngineWatch:
    """Containers. `opaque`: their processes are none of this host (gVisor)."""

    def __init__(self, engine: Engine, data: Path, *, opaque: bool) -> None:
        self._api = engine.client.api
        self._owner = data / "engine-owner"
        self._opaque = opaque

    def supervisors(self) -> list[int]:
        return [pid for row in self._running() if (pid := self._pid(row["Id"]))]

    def commands(self) -> list[int]:
        if not self._opaque:
            return [child for pid in self.supervisors() for child in children(pid)]
        return [int(line.split("/")[2]) for row in self._running() for line in self._inside(row["Id"], CHILDREN)]

    def sleeping(self, mark: str) -> list[int]:
        if not self._opaque:
            return []
        lines = [line for row in self._running() for line in self._inside(row["Id"], LINES)]
        return [int(line.split("/")[-2]) for line in lines if line.startswith(f"sleep\1{mark}\1 ")]

    def kill(self, folder: Path) -> bool:
        found = self._of(folder)
        for row in found:
            self._api.kill(row["Id"], "KILL")
        return bool(found)

    def runs(self, folder: Path) -> bool:
        return bool(self._of(folder))

    def _of(self, folder: Path) -> list[Any]:
        home = load(folder)
        return [] if home is None else self._running(f"longhaul.place={home.meta.place}")

    def _running(self, *labels: str) -> list[Any]:
        if not self._owner.exists():
            return []
        found: list[Any] = self._api.containers(
            filters={"label": [f"longhaul.owner={self._owner.read_text()}", *labels], "status": "running"}
        )
        return found

    def _pid(self, container: str) -> int:
        """The pid here of what the engine, in a PID namespace of its own, calls otherwise."""
        with contextlib.suppress(DockerException):
            inner = str(self._api.inspect_container(container)["State"]["Pid"])
            for status in Path("/proc").glob("[0-9]*/status"):
                with contextlib.suppress(OSError, IndexError):
                    [told] = [line.split()[1:] for line in status.read_text().splitlines() if line.startswith("NSpid:")]
                    if told[1] == inner:
                        return int(told[0])
        return 0

    def _inside(self, container: str, script: str) -> list[str]:
        """What a script says that the engine runs inside; nothing where the container is just ending."""
        with contextlib.suppress(DockerException):
            made = self._api.exec_create(container, ["sh", "-c", script], stderr=False)
            said: bytes = self._api.exec_start(made["Id"])
            return said.decode(errors="replace").splitlines()
        return []


def children(pid: int) -> list[int]:
    """A process's children."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
