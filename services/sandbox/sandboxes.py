"""The sandboxes of this host: made, found, copied, destroyed. Disk is the truth; what is held here can be rebuilt."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import SandboxInfo, SandboxSpec, SandboxState
from services.sandbox import fences, tree
from services.sandbox.backend import Backend
from services.sandbox.execs import Execs
from services.sandbox.home import Home, load
from services.sandbox.making import Maker, Programs, sound
from services.sandbox.pool import Pool, Started
from services.sandbox.records import sync_folder
from services.sandbox.snapshots import Snapshots
from services.sandbox.waiting import SharedLock

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

    def __init__(self, maker: Maker, backend: Backend, execs: Execs, snapshots: Snapshots, pool: Pool) -> None:
        self._maker = maker
        self._live = maker.folders.live
        self._backend = backend
        self._execs = execs
        self._snapshots = snapshots
        self._pool = pool
        self._guards: WeakValueDictionary[str, Guard] = WeakValueDictionary()  # alive while a call holds one

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
            template=meta.template,
            created_at=meta.created_at,
        )

    def infos(self) -> list[SandboxInfo]:
        """The state of every sandbox that is not being destroyed; one that vanishes meanwhile is left out."""
        return [self.info(home) for home in self.homes() if not home.gone.exists()]

    async def create(self, spec: SandboxSpec) -> SandboxInfo:
        """Make one, or find the one of this id.

        Raises:
            LonghaulError: ``CAPABILITY_MISSING``; ``TEMPLATE_NOT_FOUND``; ``DISK_FULL``; ``SANDBOX_NOT_FOUND`` where
                there is no source; ``SANDBOX_UNAVAILABLE`` where it stays busy; ``VALIDATION_FAILED`` for another's id;
                where it comes from a snapshot ``SNAPSHOT_NOT_FOUND``, ``SNAPSHOT_FAILED``, ``OBJECTS_UNAVAILABLE``.
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
        if spec.network.allow and not self._backend.capabilities().network:
            raise LonghaulError(
                ErrorCode.CAPABILITY_MISSING, f"sandboxes of this host ({self._backend.name}) have no network"
            )
        if spec.copy_of is None:
            programs = self._maker.programs(spec.template)
            return await self._give(spec, programs, lambda home: self._fill(home, spec))
        source = self.find(spec.copy_of)
        programs = Programs(source.meta.template, source.meta.build)
        async with self.still(source):
            return await self._give(
                spec, programs, lambda home: tree.copy(source.workspace, home.workspace, home.meta.uid)
            )

    def _fill(self, home: Home, spec: SandboxSpec) -> None:
        if spec.snapshot is not None:
            self._snapshots.fill(home, spec.snapshot)

    async def _give(self, spec: SandboxSpec, programs: Programs, fill: Callable[[Home], None]) -> Home:
        """One that was ready, or a new one; its processes start with its first command then."""
        if spec.network.allow or programs != self._maker.programs():
            return await asyncio.to_thread(self._new, spec, programs, fill)
        started = await self._pool.take(spec.limits, programs)
        try:
            given = await asyncio.to_thread(self._given, started, spec, programs, fill)
        except Exception:
            if started is not None:
                await self._pool.drop(started)
            raise
        if started is not None:
            self._execs.take_over(given, started.supervisor)
        self._pool.want(spec.limits)
        return given

    def _given(
        self, started: Started | None, spec: SandboxSpec, programs: Programs, fill: Callable[[Home], None]
    ) -> Home:
        if started is None:
            return self._new(spec, programs, fill)
        return self._maker.give(started.home, spec, fill)

    def _new(self, spec: SandboxSpec, programs: Programs, fill: Callable[[Home], None]) -> Home:
        home = self._maker.make(spec.limits, programs)
        try:
            return self._maker.give(home, spec, fill)
        except BaseException:
            self._maker.drop(home)
            raise

    @asynccontextmanager
    async def still(self, source: Home, wait_s: float = COPY_WAIT_S) -> AsyncIterator[None]:
        """Hold a sandbox's files still: no command runs in it and no change is made.

        Commands that still run after `wait_s` are not interrupted: the copy is refused and can be asked again.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        busy = LonghaulError(
            ErrorCode.SANDBOX_UNAVAILABLE, "the sandbox to copy is busy: commands still run in it", retry_after_s=5
        )
        try:
            guard = self.guard(source.meta.id)
            async with guard.files.exclusive(wait_s):
                if not await self._execs.quiet(source, max(0.0, until - loop.time())):
                    raise busy
                yield
        except TimeoutError as error:
            raise busy from error

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
        await asyncio.to_thread(self._maker.drop, home)

    async def sweep(self) -> None:
        """Finish what was left: sandboxes marked gone, folders without a record, those that nobody got, the trash. One
        that cannot be removed is logged and keeps none of the others."""
        left = await asyncio.to_thread(lambda: [*self._live.iterdir(), *self._maker.left_over()])
        for folder in left:
            try:
                await self._sweep_one(folder)
            except (OSError, LonghaulError):
                _LOG.exception("%s cannot be removed yet", folder)
        try:
            await self._backend.reconcile(self._places)
        except LonghaulError as error:
            _LOG.warning("what runs for no sandbox is not ended yet: %s", error)

    def _places(self) -> set[str]:
        waiting = [home for home in map(sound, self._maker.folders.making.iterdir()) if home]
        return {home.meta.place for home in [*waiting, *self.homes()]}  # in this order: a claim moves one to the others

    async def _sweep_one(self, folder: Path) -> None:
        live = folder.parent == self._live
        home = await asyncio.to_thread(load if live else sound, folder)
        if home is None or folder.parent == self._maker.folders.trash:
            await asyncio.to_thread(self._maker.delete, folder, home)
        elif not live:
            await self._backend.stop(home)
            await asyncio.to_thread(self._maker.drop, home)
        elif home.gone.exists():
            await self.destroy(home.meta.id)
