"""Containers of an engine: one is one sandbox, its first process is the supervisor.

Hardened as follows: nothing of the root is writable, only sized or named mounts are; no network; every capability
dropped but the three with which the supervisor becomes a command's user and ends it; a system-call filter of our own;
no new privileges; limits on memory (without swap), processors, processes, descriptors and core files. The engine's
socket is never inside.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.types import Mount, Ulimit
from requests.exceptions import RequestException

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import WORKSPACE, SandboxLimits
from services.sandbox.engine.attach import Attached, attached
from services.sandbox.engine.profile import profile

T = TypeVar("T")

WITHIN_S = 30.0
"""How long one call to the engine may take: one that accepts and never answers must not hold anybody."""
JOB_UID = 10_001
SUPERVISOR = "/.longhaul/supervisor"
SHM, TMP = "16m", "256m"
PIDS, NOFILE = 512, 4096
OWNER = "longhaul.owner"
CAPABILITIES = ["SETUID", "SETGID", "KILL"]


@dataclass(frozen=True, slots=True)
class Container:
    """What to start. `binds` are (host, inside) pairs, read-only; `workspace` is a folder of the host that `JOB_UID`
    owns, or None for one in memory, as large as `limits.disk_mb`. `labels` find it again."""

    name: str
    image: str
    labels: Mapping[str, str]
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    workspace: Path | None = None
    binds: tuple[tuple[str, str], ...] = ()
    linger_s: int = 120


@dataclass(frozen=True, slots=True)
class Found:
    """A container that is there. `running` False: it has ended, or never started."""

    name: str
    running: bool
    oom_killed: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


class Containers:
    """What an engine is asked. All raise ``SANDBOX_UNAVAILABLE`` where it does not answer; every call is bounded.

    `supervisor` is the static program on this host; `outside` the inode of the runner's PID namespace; `runtime` the
    engine's name for how containers run (``runc``, ``runsc``), None for its default; `owner` marks what is ours.
    """

    def __init__(
        self, client: docker.DockerClient, supervisor: Path, outside: int, owner: str, runtime: str | None = None
    ) -> None:
        self._client = client
        self._supervisor = supervisor
        self._outside = outside
        self._owner = owner
        self._runtime = runtime
        self._profile = profile()

    async def start(self, what: Container) -> None:
        """Make and start it. One of this name that is there is left alone: it is what was asked for.

        Raises:
            LonghaulError: ``NOT_FOUND``: no such image here; ``SPAWN_FAILED``: the engine could not start it.
        """
        await self._asked(lambda: self._create(what))
        await self._asked(lambda: self._client.api.start(what.name))

    def _create(self, what: Container) -> None:
        api = self._client.api
        try:
            api.create_container(
                what.image,
                command=self._command(what),
                name=what.name,
                user="0:0",
                stdin_open=True,
                detach=True,  # without it the client says StdinOnce: the stream would end with the first attachment
                network_disabled=True,
                hostname="sandbox",
                labels={**what.labels, OWNER: self._owner},
                host_config=api.create_host_config(**self._host(what)),
            )
        except APIError as error:
            if error.status_code != 409:
                raise

    def _command(self, what: Container) -> list[str]:
        own = ["--job-uid", str(JOB_UID), "--job-gid", str(JOB_UID)]
        roots = ["--root", WORKSPACE, "--root", "/tmp"]
        outside = ["--outside-pid-ns", str(self._outside)]
        return [SUPERVISOR, *outside, *roots, *own, "--linger", str(what.linger_s), "--nofile", str(NOFILE)]

    def _host(self, what: Container) -> dict[str, Any]:
        limits = what.limits
        made = {
            "runtime": self._runtime,
            "network_mode": "none",
            "read_only": True,
            "cap_drop": ["ALL"],
            "cap_add": CAPABILITIES,
            "security_opt": ["no-new-privileges", f"seccomp={self._profile}"],
            "pids_limit": limits.pids or PIDS,
            "shm_size": SHM,
            "tmpfs": {"/tmp": f"size={TMP},nr_inodes=50k,mode=1777,exec", **self._in_memory(what)},
            "mounts": self._mounts(what),
            "ulimits": [Ulimit(name="nofile", soft=NOFILE, hard=NOFILE), Ulimit(name="core", soft=0, hard=0)],
            "oom_score_adj": 100,
            "ipc_mode": "private",
        }
        if limits.memory_mb:
            made |= {"mem_limit": f"{limits.memory_mb}m", "memswap_limit": f"{limits.memory_mb}m"}
        if limits.cpu:
            made["nano_cpus"] = round(limits.cpu * 1e9)
        return made

    @staticmethod
    def _in_memory(what: Container) -> dict[str, str]:
        if what.workspace is not None:
            return {}
        size = what.limits.disk_mb or 1024
        return {WORKSPACE: f"size={size}m,nr_inodes={size * 256},uid={JOB_UID},gid={JOB_UID},mode=0755,exec"}

    def _mounts(self, what: Container) -> list[Mount]:
        binds = [(str(self._supervisor), SUPERVISOR), *what.binds]
        made = [Mount(inside, host, type="bind", read_only=True) for host, inside in binds]
        if what.workspace is not None:
            made.append(Mount(WORKSPACE, str(what.workspace), type="bind"))
        return made

    async def attach(self, name: str) -> Attached:
        """The supervisor's stream.

        Raises:
            LonghaulError: ``SANDBOX_LOST``: it does not run any more.
        """
        if not (found := await self.find(name)) or not found.running:
            raise LonghaulError(ErrorCode.SANDBOX_LOST, "the sandbox's container does not run any more")
        params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        held = await self._asked(lambda: self._client.api.attach_socket(name, params))
        return await attached(_socket_of(held))

    async def find(self, name: str) -> Found | None:
        """The container of this name, if it is ours."""
        try:
            told = await self._asked(lambda: self._client.api.inspect_container(name))
        except LonghaulError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            raise
        labels = told["Config"]["Labels"] or {}
        if labels.get(OWNER) != self._owner:
            return None
        return Found(name, told["State"]["Running"], told["State"]["OOMKilled"], labels)

    async def list(self, labels: Mapping[str, str] | None = None) -> list[Found]:
        """All of ours that have these labels, ended ones too."""
        wanted = [f"{name}={value}" for name, value in {OWNER: self._owner, **(labels or {})}.items()]
        rows = await self._asked(lambda: self._client.api.containers(all=True, filters={"label": wanted}))
        return [Found(row["Names"][0].lstrip("/"), row["State"] == "running", labels=row["Labels"]) for row in rows]

    async def destroy(self, name: str) -> None:
        """End and remove it; one that is not there is no fault."""
        try:
            await self._asked(lambda: self._client.api.remove_container(name, force=True, v=True))
        except LonghaulError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise

    async def version(self) -> str:
        """What engine answers, and with which runtimes."""
        told = await self._asked(self._client.api.info)
        return f"{told['ServerVersion']} ({', '.join(sorted(told['Runtimes']))})"

    async def _asked(self, call: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(WITHIN_S):
                return await asyncio.to_thread(call)
        except (ImageNotFound, NotFound) as error:
            raise LonghaulError(ErrorCode.NOT_FOUND, f"the engine knows no such thing: {error.explanation}") from error
        except APIError as error:
            raise LonghaulError(ErrorCode.SPAWN_FAILED, f"the engine refused: {error.explanation}") from error
        except (DockerException, RequestException, TimeoutError, OSError) as error:
            raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, f"the engine does not answer: {error!s:.200}") from error


def _socket_of(held: Any) -> socket.socket:
    """The socket under what the engine's client hands out, as one of its own: the client's is closed, because the
    engine counts a stream as open until the last one is."""
    inner = getattr(held, "_sock", held)
    if not isinstance(inner, socket.socket):
        raise LonghaulError(ErrorCode.CAPABILITY_MISSING, "attach needs an engine on a unix or plain socket")
    own = inner.dup()
    inner.close()
    return own
