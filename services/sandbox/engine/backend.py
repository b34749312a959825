"""The backends docker and gvisor: each sandbox is a container of an engine, with a supervisor in it."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import WORKSPACE, Capabilities, Trait
from services.sandbox import inside
from services.sandbox.engine.client import EngineClient
from services.sandbox.engine.containers import Container, Containers, Streams
from services.sandbox.engine.image import Images
from services.sandbox.home import Home
from services.sandbox.network import arguments
from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.launch import LAST
from services.sandbox.supervised.messages import LinkLost
from services.sandbox.template import Laid

PLACE, SANDBOX, TASK = "longhaul.place", "longhaul.sandbox", "longhaul.task"
LINGER_S = 300
_ENFORCED = {"memory_mb": "MemoryLimit", "cpu": "CpuCfsQuota", "pids": "PidsLimit"}  # as an engine's info names them
_LOG = logging.getLogger(__name__)


class _MuteError(LonghaulError):
    """A container runs, and its supervisor does not answer."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What differs between them. `runtime` is the engine's name for how containers run, None for its default; `limits`
    what that holds; `pids` how many processes a container may have that was given no limit."""

    name: str
    runtime: str | None
    limits: tuple[str, ...]
    traits: tuple[Trait, ...]
    pids: int


_ALL_TOLD = (Trait.SUPERVISOR_APART, Trait.OOM_TOLD, Trait.ADOPTS_ORPHANS)
DOCKER = Kind("docker", None, ("memory_mb", "cpu", "pids"), _ALL_TOLD, 512)
GVISOR = Kind("gvisor", "runsc", ("memory_mb", "cpu"), (Trait.SUPERVISOR_APART, Trait.OWN_KERNEL), 1024)
"""Of gVisor an engine counts the host's processes, several for each one inside; where they end, the sandbox does."""
KINDS = {kind.name: kind for kind in (DOCKER, GVISOR)}


class EngineBackend:
    """Containers of an engine. `built` is the supervisor as it was built for this machine. The runner's folders must
    have the same paths for the engine as for the runner."""

    def __init__(self, kind: Kind, client: EngineClient, containers: Containers, images: Images, built: Path) -> None:
        self.name = kind.name
        self._kind = kind
        self._client = client
        self._containers = containers
        self._images = images
        self._built = built
        self._env: dict[str, Mapping[str, str]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def setup(self) -> None:
        """Lay down what is shown inside."""
        self._images.setup()
        inside.place_program(self._built, self._containers.supervisor)

    def capabilities(self) -> Capabilities:
        """What the engine says of itself; that an image is there."""
        told: dict[str, Any] = {}
        fault = None
        try:
            told = self._client.ask_now(lambda api: api.info())
            fault = self._unfit(told) or inside.place_program(self._built, self._containers.supervisor)
            if fault is None:
                self._images.get("")
        except LonghaulError as error:
            fault = error.detail
        limits = tuple(name for name in self._kind.limits if told.get(_ENFORCED[name]))
        traits = self._kind.traits
        return Capabilities(
            backend=self.name, ready=fault is None, limits=limits, network=True, traits=traits, detail=fault or ""
        )

    def _unfit(self, told: dict[str, Any]) -> str | None:
        if any("rootless" in option for option in told.get("SecurityOptions") or []):
            return (
                "a rootless engine cannot give sandboxes users of their own: use the namespace backend, or a usual one"
            )
        runtime = self._kind.runtime
        if runtime is not None and runtime not in told["Runtimes"]:
            return (
                f"the engine has no runtime {runtime}: install gVisor (apt install runsc), then `runsc install "
                f"--runtime {runtime} -- --oci-seccomp`, restart the engine; or name another: LONGHAUL_RUNNER_RUNTIME"
            )
        return None

    def make(self, home: Home) -> None:
        """Refuse limits that nothing here can hold."""
        asked = home.meta.limits.model_dump(exclude={"best_effort"}, exclude_none=True)
        missing = sorted(set(asked) - set(self.capabilities().limits))
        if missing and not home.meta.limits.best_effort:
            raise LonghaulError(
                ErrorCode.CAPABILITY_MISSING,
                f"{self.name} cannot enforce {', '.join(missing)} here; leave it out or set best_effort",
            )
        self._images.templates.of(home.meta.build).seed(home.private, home.meta.uid)

    def base(self, home: Home) -> list[Laid]:
        """What is not the engine's."""
        return self._images.laid(home.meta.build)

    def templates(self) -> tuple[str, ...]:
        """All that are built."""
        return self._images.templates.names()

    def pick(self, template: str) -> str:
        """The build that is in use."""
        return self._images.templates.pick(template)

    async def find(self, home: Home, epoch: int) -> Supervisor | None:
        """By the stream of its container's first process."""
        async with self._lock(home):
            return await self._find(home, epoch)

    async def start(self, home: Home, epoch: int) -> Supervisor:
        """A container, made anew where the one before has ended, or stays mute: whatever ran in it is lost then."""
        async with self._lock(home):
            try:
                found = await self._heard(home, epoch)
            except _MuteError:
                _LOG.error("a sandbox that does not answer is ended", extra={"sandbox_id": home.meta.id})
                await self._remove(home)
                found = None
            return found or await self._start(home, epoch)

    async def _heard(self, home: Home, epoch: int) -> Supervisor | None:
        """Find, and wait longer than a busy machine makes anybody wait."""
        try:
            return await self._find(home, epoch)
        except _MuteError:
            return await self._find(home, epoch)

    async def stop(self, home: Home) -> None:
        """By the removal of its container."""
        async with self._lock(home):
            await self._remove(home)

    def environment(self, home: Home, extra: dict[str, str]) -> dict[str, str]:
        """What the image and the template bring, and what every sandbox has."""
        build = home.meta.build
        if build not in self._env:  # a runner that has found what another one started
            self._env[build] = self._images.get(build).env
        return {**self._images.templates.environment(build, self._env[build]), **extra}

    def remove(self, home: Home) -> None:
        """Nothing is outside the folders."""

    def explain(self, output: str) -> str:
        """The engine's words are clear enough."""
        return f"a sandbox could not be started as a container: {output.strip() or 'no word'}"

    async def reconcile(self, places: Callable[[], set[str]]) -> None:
        """Remove our containers of sandboxes that are not there (any more)."""
        running = await self._containers.list()
        known = await asyncio.to_thread(places)  # after: a sandbox is there before its container is
        for found in running:
            if found.labels.get(PLACE) not in known:
                _LOG.warning("a container without a sandbox is removed: %s", found.name)
                await self._containers.destroy(found.name)

    async def _find(self, home: Home, epoch: int) -> Supervisor | None:
        name = self._name(home)
        found = await self._containers.find(name)
        if found is not None and found.paused:
            raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, f"the sandbox is paused: docker unpause {name}")
        if found is not None and found.running:
            with contextlib.suppress(LinkLost):
                return await self._greeted(await self._containers.attach(name), epoch, resync=True)
            found = await self._containers.find(name)  # it may just have ended
        if found is not None and found.running:
            raise _MuteError(ErrorCode.SANDBOX_UNAVAILABLE, "the sandbox's supervisor does not answer")
        if found is not None:
            _LOG.warning("a sandbox has ended: %s", found.why, extra={"sandbox_id": home.meta.id})
            await self._remove(home)
        return None

    async def _start(self, home: Home, epoch: int) -> Supervisor:
        what = await self._client.aside(lambda: self._container(home))
        try:
            streams = await self._containers.start(what)
            try:
                return await self._greeted(streams, epoch)
            except LinkLost as error:
                found = await self._containers.find(what.name)
                said = streams[0].said or (found.why if found else "it is gone")
                await self._remove(home)
                raise LonghaulError(ErrorCode.SPAWN_FAILED, said) from error
        except LonghaulError as error:
            if error.code in (ErrorCode.SPAWN_FAILED, ErrorCode.NOT_FOUND):
                raise LonghaulError(ErrorCode.SPAWN_FAILED, self.explain(error.detail)) from error
            raise

    @staticmethod
    async def _greeted(streams: Streams, epoch: int, *, resync: bool = False) -> Supervisor:
        supervisor = Supervisor(*streams)
        await supervisor.greet(epoch, resync=resync)
        return supervisor

    async def _remove(self, home: Home) -> None:
        try:
            await self._containers.destroy(self._name(home))
        except LonghaulError as error:
            if error.code is ErrorCode.SANDBOX_UNAVAILABLE:
                raise
            raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, f"the sandbox does not end: {error.detail}") from error

    def _container(self, home: Home) -> Container:
        image, meta = self._images.get(home.meta.build), home.meta
        self._env[meta.build] = image.env
        uid = os.geteuid() if meta.uid is None else meta.uid
        return Container(
            name=self._name(home),
            image=image.name,
            labels={PLACE: meta.place, SANDBOX: meta.id, TASK: meta.task_id},
            uid=uid,
            pids=(meta.limits.pids if "pids" in self._kind.limits else None) or self._kind.pids,
            limits=meta.limits,
            folders=((str(home.workspace), WORKSPACE), (str(home.private), "/tmp")),
            binds=(*image.binds, *(_users(home.root, uid) if image.ours else ())),
            more=arguments(meta.network),
            last=_last(home) if uid != os.geteuid() else None,
            linger_s=LINGER_S,
        )

    def _name(self, home: Home) -> str:
        return f"longhaul-{self._containers.owner}-{home.meta.place}"

    def _lock(self, home: Home) -> asyncio.Lock:
        """One at a time for each sandbox: what one call has just made another must not take for a left-over."""
        found = self._locks.get(home.meta.place)
        if found is None:
            found = self._locks[home.meta.place] = asyncio.Lock()
        return found


def _last(home: Home) -> str:
    """A file for last words, of root alone."""
    file = home.root / LAST
    file.unlink(missing_ok=True)
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return str(file)


def _users(root: Path, uid: int) -> tuple[tuple[str, str], ...]:
    """The files of /etc that name a sandbox's user, as binds."""
    found = []
    for name, text in inside.users(uid).items():
        (root / name).write_text(text)
        (root / name).chmod(0o644)
        found.append((str(root / name), f"/etc/{name}"))
    return tuple(found)
