"""Containers of an engine: one is one sandbox, its first process is the supervisor.

Hardened as follows: nothing of the root is writable, only the named folders are; no network; every capability dropped
but the three with which the supervisor becomes a command's user and ends it; a system-call filter of our own; no new
privileges; limits on memory (without swap), processors, processes, descriptors and core files; nothing of /sys but its
own control groups. The engine's socket is never inside, and what the supervisor says is never logged by the engine.
"""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker.types import LogConfig, Mount, Ulimit

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import WORKSPACE, SandboxLimits
from services.sandbox.engine.attach import Output, attached
from services.sandbox.engine.client import EngineClient
from services.sandbox.engine.profile import profile
from services.sandbox.inside import SHM_BYTES

SUPERVISOR, LAST = "/.longhaul/supervisor", "/.longhaul/last"
NOFILE = 4096
OWNER = "longhaul.owner"
CAPABILITIES = ["SETUID", "SETGID", "KILL"]
_MASKED_PROC = ["acpi", "asound", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list", "timer_stats"]
GONE_WITHIN_S, LOOK_S = 30.0, 0.05

Streams = tuple[Output, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Container:
    """What to start. `uid` is whom its commands run as; `folders` and `binds` are (host, inside) pairs, writable and
    read-only. `labels` find it again. `pids` is how many processes the engine lets it have; `last` a file of the host
    for the supervisor's last words, which commands cannot open; `more` what else the supervisor is told."""

    name: str
    image: str
    labels: Mapping[str, str]
    uid: int
    pids: int
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    folders: tuple[tuple[str, str], ...] = ()
    binds: tuple[tuple[str, str], ...] = ()
    last: str | None = None
    more: tuple[str, ...] = ()
    linger_s: int = 120


@dataclass(frozen=True, slots=True)
class Found:
    """A container that is there. `running` False: it has ended, or never started; `why` says how."""

    name: str
    running: bool
    paused: bool = False
    why: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


class Containers:
    """What an engine is asked, all of it bounded. Raises as `EngineClient.ask` does.

    `supervisor` is our copy of the static program; `outside` the inode of the runner's PID namespace; `runtime`
    the engine's name for how containers run (``runc``, ``runsc``), None for its default; `owner` marks what is ours.
    """

    def __init__(
        self,
        engine: EngineClient,
        supervisor: Path,
        outside: int,
        owner: str,
        runtime: str | None = None,
        *,
        own_kernel: bool = False,
    ) -> None:
        self._engine = engine
        self.supervisor = supervisor
        self._outside = outside
        self.owner = owner
        self._runtime = runtime
        self._profile = profile(own_kernel=own_kernel)

    async def start(self, what: Container) -> Streams:
        """Make it, attach to it and start it: so nothing that it says is missed.

        Raises:
            LonghaulError: ``NOT_FOUND``: no such image here; ``SPAWN_FAILED``: the engine could not start it, or
                there is one of this name.
        """
        await self._engine.ask(lambda api: self._create(api, what))
        try:
            stream = await self.attach(what.name)
            await self._engine.ask(lambda api: api.start(what.name))
        except BaseException:
            await self.destroy(what.name)
            raise
        return stream

    def _create(self, api: Any, what: Container) -> None:
        config = api.create_host_config(**self._host(what))
        config["MaskedPaths"] = _masked()
        api.create_container(
            what.image,
            entrypoint=[SUPERVISOR],
            command=self._arguments(what),
            name=what.name,
            user="0:0",
            stdin_open=True,
            detach=True,  # without it the client says StdinOnce: the stream would end with the first attachment
            network_disabled=True,
            hostname="sandbox",
            healthcheck={"test": ["NONE"]},
            labels={**what.labels, OWNER: self.owner},
            host_config=config,
        )

    def _arguments(self, what: Container) -> list[str]:
        own = ["--job-uid", str(what.uid), "--job-gid", str(what.uid)]
        outside = ["--outside-pid-ns", str(self._outside), "--root", WORKSPACE]
        words = ["--last-file", LAST] if what.last is not None else []
        return [*outside, *own, *words, *what.more, "--linger", str(what.linger_s), "--nofile", str(NOFILE)]

    def _host(self, what: Container) -> dict[str, Any]:
        limits = what.limits
        made = {
            "runtime": self._runtime,
            "network_mode": "none",
            "read_only": True,
            "cap_drop": ["ALL"],
            "cap_add": CAPABILITIES,
            "security_opt": ["no-new-privileges", f"seccomp={self._profile}"],
            "pids_limit": what.pids,
            "shm_size": SHM_BYTES,
            "mounts": self._mounts(what),
            "ulimits": [Ulimit(name="nofile", soft=NOFILE, hard=NOFILE), Ulimit(name="core", soft=0, hard=0)],
            "oom_score_adj": 100,
            "ipc_mode": "private",
            "userns_mode": "host",  # where users are mapped, the folders' owner would be another one inside
            "log_config": LogConfig(type="none"),
        }
        if limits.memory_mb:
            made |= {"mem_limit": f"{limits.memory_mb}m", "memswap_limit": f"{limits.memory_mb}m"}
        if limits.cpu:
            made["nano_cpus"] = round(limits.cpu * 1e9)
        return made

    def _mounts(self, what: Container) -> list[Mount]:
        binds = [(str(self.supervisor), SUPERVISOR), *what.binds]
        made = [Mount(inside, host, type="bind", read_only=True) for host, inside in binds]
        folders = [*what.folders, *([(what.last, LAST)] if what.last is not None else [])]
        return made + [Mount(inside, host, type="bind") for host, inside in folders]

    async def attach(self, name: str) -> Streams:
        """The stream of its supervisor. One that has ended gives nothing but its end.

        Raises:
            LonghaulError: ``SANDBOX_LOST``: there is no such container.
        """
        params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        try:
            held = await self._engine.ask(lambda api: api.attach_socket(name, params))
        except LonghaulError as error:
            if error.code is ErrorCode.NOT_FOUND:
                raise LonghaulError(ErrorCode.SANDBOX_LOST, "the sandbox's container is not there any more") from error
            raise
        return await attached(_socket_of(held))

    async def find(self, name: str) -> Found | None:
        """The container of this name, if it is ours."""
        try:
            told = await self._engine.ask(lambda api: api.inspect_container(name))
        except LonghaulError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            raise
        labels = told["Config"]["Labels"] or {}
        state = told["State"]
        if labels.get(OWNER) != self.owner:
            return None
        why = "it ran out of memory" if state["OOMKilled"] else f"it ended with {state['ExitCode']} {state['Error']}"
        return Found(name, state["Running"], state["Paused"], why.strip(), labels)

    async def list(self, labels: Mapping[str, str] | None = None) -> list[Found]:
        """All of ours that have these labels, ended ones too."""
        wanted = [f"{name}={value}" for name, value in {OWNER: self.owner, **(labels or {})}.items()]
        rows = await self._engine.ask(lambda api: api.containers(all=True, filters={"label": wanted}))
        return [
            Found(
                row["Names"][0].lstrip("/"), row["State"] == "running", row["State"] == "paused", labels=row["Labels"]
            )
            for row in rows
            if row["Names"]  # one that is just being removed has none
        ]

    async def end(self, name: str, grace_s: int) -> None:
        """Let its supervisor end everything and leave its last words; the engine ends it where that takes too long."""
        try:
            await self._engine.ask(lambda api: api.stop(name, timeout=grace_s))
        except LonghaulError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise

    async def destroy(self, name: str) -> None:
        """End and remove it; returns when it is gone. One that is not there is no fault."""
        loop = asyncio.get_running_loop()
        until = loop.time() + GONE_WITHIN_S
        while True:
            try:
                await self._engine.ask(lambda api: api.remove_container(name, force=True, v=True))
            except LonghaulError as error:
                if error.code is ErrorCode.NOT_FOUND:
                    return
                if error.code is not ErrorCode.SPAWN_FAILED or loop.time() > until:  # another call is removing it
                    raise
            await asyncio.sleep(LOOK_S)


def _masked() -> list[str]:
    """What an engine masks by itself, and all of this host's /sys but the control groups."""
    sys = [path for path in Path("/sys").iterdir() if path.name != "fs"]
    sys += [path for path in Path("/sys/fs").iterdir() if path.name != "cgroup"]
    return [*(f"/proc/{name}" for name in _MASKED_PROC), *map(str, sys)]


def _socket_of(held: Any) -> socket.socket:
    """The socket under what the engine's client hands out, as one of its own: the client's is closed, because the
    engine counts a stream as open until the last one is."""
    inner = getattr(held, "_sock", held)
    if not isinstance(inner, socket.socket):
        raise LonghaulError(ErrorCode.CAPABILITY_MISSING, "attach needs an engine on a unix or plain socket")
    own = inner.dup()
    held.close()
    inner.close()
    return own
