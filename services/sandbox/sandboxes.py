"""The sandboxes of this host: made, found, copied, destroyed. Disk is the truth; what is held here can be rebuilt.

DATA/sandboxes/ID/   a live one, complete: it was made under making/ and renamed
DATA/making/         half-made; removed when the runner starts
DATA/trash/          destroyed, waiting for deletion
"""

import asyncio
import logging
import os
import secrets
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from weakref import WeakValueDictionary

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import SandboxInfo, SandboxSpec, SandboxState
from services.sandbox import fences, tree
from services.sandbox.backend import Backend
from services.sandbox.execs import Execs
from services.sandbox.home import FOLDERS, OWNED, Home, load
from services.sandbox.records import Fences, Meta, sync_folder, write
from services.sandbox.snapshots import Snapshots
from services.sandbox.waiting import SharedLock

FIRST_UID, UIDS = 200_000, 30_000
COPY_WAIT_S = 60.0
_LOG = logging.getLogger(__name__)


class Guard:
    """What keeps calls on one sandbox apart: `change` serialises decisions, `files` is shared by whatever may write
    (changes, running commands) and held alone while a copy is taken."""

    def __init__(self) -> None:
        self.change = asyncio.Lock()
        self.files = SharedLock()


class Sandboxes:
    """All of them. `execs` ends what runs when one is destroyed."""

    def __init__(self, data_dir: Path, backend: Backend, execs: Execs, snapshots: Snapshots) -> None:
        self._live, self._making, self._trash = (data_dir / name for name in ("sandboxes", "making", "trash"))
        self._backend = backend
        self._execs = execs
        self._snapshots = snapshots
        self._guards: WeakValueDictionary[str, Guard] = WeakValueDictionary()  # alive while a call holds one
        self._deleting: set[Path] = set()
        self._root = os.geteuid() == 0
        self._uids: set[int] = set()
        self._uids_lock = threading.Lock()  # sandboxes are built in threads, and no two may get one user

    def prepare(self) -> None:
        """At start: make the folders, drop what was half made or half sent, learn which users are taken."""
        for folder in (self._live, self._making, self._trash):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        for half in self._making.iterdir():
            tree.delete(half)
        for upload in self._live.glob("*/staging/upload-*"):
            upload.unlink(missing_ok=True)
        self._uids = {home.meta.uid for home in self.homes() if home.meta.uid is not None}
        self._uids |= {home.meta.uid for home in map(load, self._trash.iterdir()) if home and home.meta.uid is not None}

    def homes(self) -> list[Home]:
        """Every complete sandbox on disk, those being destroyed too."""
        return [home for home in map(load, self._live.iterdir()) if home is not None]

    def guard(self, sandbox_id: str) -> Guard:
        """The guard of a sandbox. Keep the guard itself for as long as its locks are used."""
        found = self._guards.get(sandbox_id)
        if found is None:
            found = self._guards[sandbox_id] = Guard()
        return found

    def find(self, sandbox_id: str) -> Home:
        """A live sandbox.

        Raises:
            LonghaulError: ``SANDBOX_NOT_FOUND``; ``SANDBOX_LOST`` where its files are not there any more.
        """
        home = load(self._live / sandbox_id)
        if home is None or home.gone.exists():
            raise LonghaulError(ErrorCode.SANDBOX_NOT_FOUND, f"there is no sandbox {sandbox_id}")
        if not home.workspace.is_dir():
            raise LonghaulError(ErrorCode.SANDBOX_LOST, "the files of this sandbox are gone")
        return home

    def info(self, home: Home) -> SandboxInfo:
        """Its state."""
        meta = home.meta
        state = SandboxState.READY if home.workspace.is_dir() else SandboxState.LOST
        return SandboxInfo(
            id=meta.id,
            tenant_id=meta.tenant_id,
            task_id=meta.task_id,
            state=state,
            fence=fences.current(home).sandbox,
            backend=meta.backend,
            created_at=meta.created_at,
        )

    def infos(self) -> list[SandboxInfo]:
        """The state of every sandbox that is not being destroyed; one that vanishes meanwhile is left out."""
        return [self.info(home) for home in self.homes() if not home.gone.exists()]

    async def create(self, spec: SandboxSpec) -> SandboxInfo:
        """Make one, or find the one of this id.

        Raises:
            LonghaulError: ``CAPABILITY_MISSING``; ``SANDBOX_UNAVAILABLE`` where the source of a copy stays busy;
                ``SANDBOX_NOT_FOUND`` where there is no source; ``DISK_FULL``; ``VALIDATION_FAILED`` for another's id;
                ``SNAPSHOT_NOT_FOUND``, ``SNAPSHOT_FAILED``, ``OBJECTS_UNAVAILABLE`` where it comes from a snapshot.
        """
        guard = self.guard(spec.id)
        async with guard.change:
            home = await asyncio.to_thread(load, self._live / spec.id)
            if home is not None and home.gone.exists():
                await self._destroy(home)
                home = None
            if home is None:
                home = await self._make(spec)
            elif (home.meta.tenant_id, home.meta.task_id) != (spec.tenant_id, spec.task_id):
                raise LonghaulError(ErrorCode.VALIDATION_FAILED, f"the id {spec.id} is in use")
            await asyncio.to_thread(fences.raise_sandbox, home, spec.fence)
            return self.info(home)

    async def _make(self, spec: SandboxSpec) -> Home:
        if spec.copy_of is not None and spec.snapshot is not None:
            raise LonghaulError(ErrorCode.VALIDATION_FAILED, "a sandbox is a copy or comes from a snapshot, not both")
        if spec.copy_of is None:
            return await asyncio.to_thread(self._build, spec, None)
        source = self.find(spec.copy_of)
        async with self.still(source):
            return await asyncio.to_thread(self._build, spec, source)

    @asynccontextmanager
    async def still(self, source: Home) -> AsyncIterator[None]:
        """Hold a sandbox's files still: no command runs in it and no change is made.

        Commands that still run after `COPY_WAIT_S` are not interrupted: the copy is refused and can be asked again.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + COPY_WAIT_S
        busy = LonghaulError(
            ErrorCode.SANDBOX_UNAVAILABLE, "the sandbox to copy is busy: commands still run in it", retry_after_s=5
        )
        try:
            guard = self.guard(source.meta.id)
            async with guard.files.exclusive(COPY_WAIT_S):
                if not await self._execs.quiet(source, max(0.0, until - loop.time())):
                    raise busy
                yield
        except TimeoutError as error:
            raise busy from error

    def _build(self, spec: SandboxSpec, source: Home | None) -> Home:
        root = self._making / f"{spec.id}-{secrets.token_hex(4)}"
        uid = self._take_uid()
        meta = Meta(
            id=spec.id,
            tenant_id=spec.tenant_id,
            task_id=spec.task_id,
            limits=spec.limits,
            network=spec.network,
            uid=uid,
            backend=self._backend.name,
            created_at=datetime.now(UTC),
        )
        home = Home(root, meta)
        try:
            self._lay_out(home, spec, source)
            root.rename(self._live / spec.id)
            sync_folder(self._live)
        except BaseException as error:
            self._backend.remove(home)
            tree.delete(root)
            self._give_uid(uid)
            if isinstance(error, OSError) and error.errno in (28, 122):
                raise LonghaulError(ErrorCode.DISK_FULL, "no space is left for a sandbox") from error
            raise
        return Home(self._live / spec.id, meta)

    def _lay_out(self, home: Home, spec: SandboxSpec, source: Home | None) -> None:
        home.root.mkdir(mode=0o711)
        for name in FOLDERS:
            (home.root / name).mkdir(mode=0o700)
        home.workspace.chmod(0o755)
        self._backend.make(home)
        if source is not None:
            tree.copy(source.workspace, home.workspace, home.meta.uid)
        if spec.snapshot is not None:
            self._snapshots.fill(home, spec.snapshot)
        if home.meta.uid is not None:
            for name in OWNED:
                os.chown(home.root / name, home.meta.uid, home.meta.uid)
        write(home.fences, Fences(sandbox=spec.fence))
        write(home.root / "meta.json", home.meta)

    async def destroy(self, sandbox_id: str) -> None:
        """Kill everything in it and delete its files; a second time does nothing."""
        guard = self.guard(sandbox_id)
        async with guard.change:
            home = await asyncio.to_thread(load, self._live / sandbox_id)
            if home is not None:
                await self._destroy(home)

    async def _destroy(self, home: Home) -> None:
        if not home.gone.exists():
            home.gone.touch()
            sync_folder(home.root)
        await self._execs.end(home)
        await asyncio.to_thread(self._delete, home)

    def _delete(self, home: Home) -> None:
        self._backend.remove(home)
        trash = self._trash / f"{home.meta.id}-{secrets.token_hex(4)}"
        self._deleting.add(trash)
        try:
            home.root.rename(trash)
            sync_folder(self._live)
            tree.delete(trash)
            self._give_uid(home.meta.uid)
        finally:
            self._deleting.discard(trash)

    async def sweep(self) -> None:
        """Finish what was left: sandboxes marked gone, folders without a record, the trash. One that cannot be removed
        is logged and keeps none of the others."""
        for folder in await asyncio.to_thread(lambda: [*self._live.iterdir(), *self._trash.iterdir()]):
            try:
                await self._sweep_one(folder)
            except (OSError, LonghaulError):
                _LOG.exception("%s cannot be removed yet", folder)

    async def _sweep_one(self, folder: Path) -> None:
        home = await asyncio.to_thread(load, folder)
        if folder.parent == self._trash:
            if folder not in self._deleting:
                await asyncio.to_thread(tree.delete, folder)
                self._give_uid(home.meta.uid if home is not None else None)
        elif home is None:
            await asyncio.to_thread(tree.delete, folder)
        elif home.gone.exists():
            await self.destroy(home.meta.id)

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
