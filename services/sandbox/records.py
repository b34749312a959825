"""What the runner keeps on disk, and how it is written: a record is whole or absent, whatever is killed when."""

import os
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel

from agents.contracts.base import UtcTime, Wire
from agents.contracts.network import Denial, NetworkPolicy
from agents.contracts.sandbox import DEFAULT_TEMPLATE, ExecReason, ExecRequest, FileChange, SandboxLimits, Snapshot
from services.storage import NO_SPACE

Record = TypeVar("Record", bound=BaseModel)


class Meta(Wire):
    """`meta.json` of a sandbox. `uid` is the user that its commands run as, where the runner is root. `made_as` is the
    name it was made under, where it was made before anybody asked for it: a claim gives it its id. `build` is that of
    its template; it keeps it when the template is built anew."""

    version: int = 1
    id: str
    tenant_id: str
    task_id: str
    limits: SandboxLimits
    network: NetworkPolicy = NetworkPolicy()
    uid: int | None
    backend: str
    template: str = DEFAULT_TEMPLATE
    build: str = ""
    created_at: UtcTime
    made_as: str = ""

    @property
    def place(self) -> str:
        """What a backend calls it (its groups, its container): the same before and after a claim."""
        return self.made_as or self.id


class Fences(Wire):
    """`fences.json`: the highest seen, of the sandbox and of each agent."""

    sandbox: int
    agents: dict[str, int] = {}


class Intent(Wire):
    """`intent.json` of an exec: it is on disk before anything is started. `call` names the client's call, so that a
    repeat after a lost answer still learns that it was the one that started the command. `instance` names the
    supervisor that was asked (hex); without one it is of a version that knew none."""

    request: ExecRequest
    call: str = ""
    instance: str = ""
    created_at: UtcTime


class Ended(Wire):
    """`exit.json`. `lost`: the sandbox, or whoever watched over the command in it, was gone first."""

    exit_code: int | None
    reason: ExecReason | Literal["spawn_failed"]
    total_bytes: int = 0
    duration_ms: int = 0
    started_at: float


class Denied(Wire):
    """`denied.json` of an exec."""

    denied: tuple[Denial, ...]


class Epoch(Wire):
    """`epoch.json` of the runner: how often one has started on this folder."""

    number: int


class FileJournal(Wire):
    """An entry of `journal/`: a keyed change of files, or a snapshot. Until `done`, whether a change took place
    is told by the staged file: still in `staging/` means it did not."""

    key: str
    request_sha256: str
    change: FileChange | None = None
    snapshot: Snapshot | None = None
    done: bool = False


def read(path: Path, kind: type[Record]) -> Record | None:
    """The record at `path`, or None where there is none."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None


def next_epoch(data_dir: Path) -> int:
    """Count a start of the runner; its number. On a full disk it counts for itself alone: the next start has the same
    number then, which is no lower one."""
    path = data_dir / "epoch.json"
    before = read(path, Epoch)
    after = Epoch(number=(before.number if before is not None else 0) + 1)
    try:
        write(path, after)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
    return after.number


def write(path: Path, record: BaseModel, *, sync: bool = True, sync_parent: bool = True) -> None:
    """Write by fsync and rename. Without `sync` it may be garbage after a power cut; without `sync_parent` the one
    before it may be there."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        left = memoryview(record.model_dump_json().encode())
        while left:  # on a disk that is just full a part is written, and only the next write says so
            left = left[os.write(fd, left) :]
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    temporary.rename(path)
    if sync_parent:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames and removals in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
