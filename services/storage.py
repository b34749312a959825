"""Free space where the data lies: below a floor nothing new is taken, so that what is under way has room to end."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agents.contracts.errors import ErrorCode, LonghaulError

if TYPE_CHECKING:
    from services.settings import Settings

FLOOR_BYTES = 256_000_000
RETRY_AFTER_S = 5.0
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True)
class Storage:
    """One file system, by a folder on it (None: nobody watches). Stateless: whoever frees space is believed at once."""

    folder: Path | None = None
    floor_bytes: int = 0

    @property
    def free_bytes(self) -> int | None:
        """What an ordinary user may still write; None where nobody watches, or nobody can say."""
        if self.folder is None:
            return None
        try:
            found = os.statvfs(self.folder)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    @property
    def full(self) -> bool:
        """Whether less than the floor is left."""
        free = self.free_bytes
        return free is not None and free < self.floor_bytes

    def check(self) -> None:
        """Raises:
        LonghaulError: ``STORAGE_FULL`` below the floor.
        """
        if self.full:
            raise self.fault()

    def fault(self) -> LonghaulError:
        """What everybody is told while it is full: not where, which is the operator's business alone."""
        return storage_full(
            f"{_mb(self.free_bytes or 0)} are free where this server keeps its data, {_mb(self.floor_bytes)} are the "
            "least. Free some space; whoever runs the server sees where with `longhaul doctor` and in its log"
        )

    @property
    def place(self) -> str:
        """What the operator is told of it."""
        return f"{_mb(self.free_bytes or 0)} are free on the file system of {self.folder}. Free some space there"


def storage_of(settings: "Settings") -> Storage:
    """The one that a process is to watch."""
    return Storage(settings.storage_dir, settings.storage_floor_bytes)


def storage_full(what: str) -> LonghaulError:
    """The fault; `what` names the place and what to do."""
    detail = f"{what}: nothing is lost, tasks that run wait and go on by themselves"
    return LonghaulError(ErrorCode.STORAGE_FULL, detail, retry_after_s=RETRY_AFTER_S)


def _mb(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
