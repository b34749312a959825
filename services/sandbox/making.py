"""Sandboxes on disk, from the first folder to the last: made, given to somebody, thrown away.

DATA/making/PLACE/   half-made, or started and nobody's; of another start of the runner: to be thrown away
DATA/sandboxes/ID/   somebody's, complete: the rename from making/ is the claim
DATA/trash/          thrown away, waiting for deletion
"""

import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import DEFAULT_TEMPLATE, SandboxLimits, SandboxSpec
from services.sandbox import tree
from services.sandbox.backend import Backend
from services.sandbox.home import FOLDERS, OWNED, Home, load
from services.sandbox.records import Fences, Meta, sync_folder, write
from services.storage import NO_SPACE

FIRST_UID, UIDS = 200_000, 30_000


class Programs(NamedTuple):
    """A template, and the build of it that a sandbox has."""

    template: str
    build: str


@dataclass(frozen=True)
class Folders:
    """Where they are."""

    live: Path
    making: Path
    trash: Path


class Maker:
    """Its methods block; they are called from threads."""

    def __init__(self, data_dir: Path, backend: Backend) -> None:
        self.folders = Folders(*(data_dir / name for name in ("sandboxes", "making", "trash")))
        self._backend = backend
        self._root = os.geteuid() == 0
        self._uids: set[int] = set()
        self._uids_lock = threading.Lock()  # no two may get one user
        self._mine: set[Path] = set()

    def prepare(self) -> None:
        """At start: make the folders, drop what was half sent, learn which users are taken."""
        for folder in (self.folders.live, self.folders.making, self.folders.trash):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        for upload in self.folders.live.glob("*/staging/upload-*"):
            upload.unlink(missing_ok=True)
        for folder in (self.folders.live, self.folders.making, self.folders.trash):
            self._uids |= {home.meta.uid for home in map(sound, folder.iterdir()) if home and home.meta.uid is not None}

    def left_over(self) -> list[Path]:
        """What another start of the runner left half-made or unclaimed, or what is to be deleted."""
        among = [*self.folders.making.iterdir(), *self.folders.trash.iterdir()]
        return [folder for folder in among if folder not in self._mine]

    def programs(self, template: str = DEFAULT_TEMPLATE) -> Programs:
        """What a new sandbox has of a template.

        Raises:
            LonghaulError: ``TEMPLATE_NOT_FOUND``.
        """
        return Programs(template, self._backend.pick(template))

    def make(self, limits: SandboxLimits, programs: Programs) -> Home:
        """One that is nobody's.

        Raises:
            LonghaulError: ``CAPABILITY_MISSING``, ``DISK_FULL``.
        """
        place = f"sb-{secrets.token_hex(8)}"
        now, uid = datetime.now(UTC), self._take_uid()
        meta = Meta(
            id=place, tenant_id="", task_id="", limits=limits, uid=uid, backend=self._backend.name, created_at=now,
            made_as=place, template=programs.template, build=programs.build,
        )  # fmt: skip
        home = Home(self.folders.making / place, meta)
        self._mine.add(home.root)
        with_space(lambda: self._lay_out(home), lambda: self.drop(home))
        return home

    def _lay_out(self, home: Home) -> None:
        home.root.mkdir(mode=0o711)
        write(home.root / "meta.json", home.meta, sync=False, sync_parent=False)
        for name in FOLDERS:
            (home.root / name).mkdir(mode=0o700)
        home.workspace.chmod(0o755)
        self._backend.make(home)
        for name in OWNED if home.meta.uid is not None else ():
            os.chown(home.root / name, home.meta.uid or 0, home.meta.uid or 0)

    def give(self, home: Home, spec: SandboxSpec, fill: Callable[[Home], None]) -> Home:
        """Fill one and make it somebody's. It is dropped where that fails.

        Raises:
            LonghaulError: as `fill` does, and ``DISK_FULL``.
        """
        owned = Home(home.root, _given(home.meta, spec))
        with_space(lambda: self._give(owned, spec, fill), lambda: None)
        self._mine.discard(home.root)
        return Home(self.folders.live / spec.id, owned.meta)

    def _give(self, owned: Home, spec: SandboxSpec, fill: Callable[[Home], None]) -> None:
        fill(owned)
        write(owned.fences, Fences(sandbox=spec.fence), sync_parent=False)
        write(owned.root / "meta.json", owned.meta)
        owned.root.rename(self.folders.live / spec.id)
        sync_folder(self.folders.live)

    def drop(self, home: Home) -> None:
        """Delete one in which nothing runs, with all that was taken for it."""
        self._backend.remove(home)
        trash = self.folders.trash / f"{home.meta.place}-{secrets.token_hex(4)}"
        self._mine.add(trash)
        try:
            if home.root.exists():
                home.root.rename(trash)
                sync_folder(home.root.parent)
                tree.delete(trash)
            self._give_uid(home.meta.uid)
        finally:
            self._mine -= {trash, home.root}

    def delete(self, folder: Path, home: Home | None) -> None:
        """Finish a deletion that was interrupted."""
        tree.delete(folder)
        self._give_uid(home.meta.uid if home is not None else None)

    def _take_uid(self) -> int | None:
        if not self._root:
            return None
        with self._uids_lock:
            uid = next(n for n in range(FIRST_UID, FIRST_UID + UIDS) if n not in self._uids)
            self._uids.add(uid)
        return uid

    def _give_uid(self, uid: int | None) -> None:
        if uid is not None:
            self._uids.discard(uid)


def sound(folder: Path) -> Home | None:
    """The sandbox in a folder; None where its record is missing, or was cut off with the power."""
    try:
        return load(folder)
    except ValueError:
        return None


def _given(meta: Meta, spec: SandboxSpec) -> Meta:
    owner = {"id": spec.id, "tenant_id": spec.tenant_id, "task_id": spec.task_id, "network": spec.network}
    return meta.model_copy(update={**owner, "limits": spec.limits, "created_at": datetime.now(UTC)})


def with_space(act: Callable[[], None], undo: Callable[[], None]) -> None:
    """Do something that needs space, or undo it; that there is none is a fault with a name."""
    try:
        act()
    except BaseException as error:
        undo()
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise LonghaulError(ErrorCode.DISK_FULL, "no space is left for a sandbox") from error
        raise
