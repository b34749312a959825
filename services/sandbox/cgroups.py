"""Hard limits of a whole sandbox, by cgroups v1 or v2 where this process may make groups."""

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from agents.contracts.sandbox import SandboxLimits

PERIOD_US = 100_000
ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Knob:
    """How one limit is written: the controller, and (file, text) for a value; optional files may be missing."""

    controller: str
    files: tuple[tuple[str, str], ...]


def knobs(limits: SandboxLimits, version: int) -> dict[str, Knob]:
    """The writes for the limits asked for, by name."""
    found: dict[str, Knob] = {}
    if limits.memory_mb is not None:
        size = str(limits.memory_mb << 20)
        v1 = (("memory.limit_in_bytes", size), ("?memory.memsw.limit_in_bytes", size))
        v2 = (("memory.max", size), ("?memory.swap.max", "0"), ("?memory.oom.group", "0"))
        found["memory_mb"] = Knob("memory", v1 if version == 1 else v2)
    if limits.pids is not None:
        found["pids"] = Knob("pids", (("pids.max", str(limits.pids)),))
    if limits.cpu is not None:
        quota = str(max(1_000, int(limits.cpu * PERIOD_US)))
        v1 = (("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", quota))
        found["cpu"] = Knob("cpu", v1 if version == 1 else (("cpu.max", f"{quota} {PERIOD_US}"),))
    return found


class Cgroups:
    """Groups named ``longhaul-ID`` below this process's own. `supported` names what was tried and holds here."""

    def __init__(self, parents: dict[str, Path], version: int, supported: tuple[str, ...]) -> None:
        self._parents = parents
        self._version = version
        self.supported = supported

    def make(self, name: str, limits: SandboxLimits) -> list[str]:
        """Make (or find) the groups for the limits that are supported; the files to which a member writes "0"."""
        wanted = {k: v for k, v in knobs(limits, self._version).items() if k in self.supported}
        joined: dict[Path, None] = {}
        for knob in wanted.values():
            group = self._group(knob.controller, name)
            group.mkdir(exist_ok=True)
            _write(group, knob)
            joined[group / "cgroup.procs"] = None
        return [str(path) for path in joined]

    def oom_counter(self, name: str, limits: SandboxLimits) -> Path | None:
        """The file with the counter ``oom_kill`` of a sandbox whose memory is held; its groups are there."""
        if limits.memory_mb is None or "memory_mb" not in self.supported:
            return None
        return self._group("memory", name) / ("memory.oom_control" if self._version == 1 else "memory.events")

    def remove(self, name: str) -> None:
        """Remove a sandbox's groups; members that are just ending get a second."""
        for group in {self._group(controller, name) for controller in self._parents}:
            for _ in range(20):
                try:
                    group.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.05)
                else:
                    break

    def _group(self, controller: str, name: str) -> Path:
        return self._parents[controller] / f"longhaul-{name}"


def _write(group: Path, knob: Knob) -> None:
    for file, text in knob.files:
        if file.startswith("?"):
            with contextlib.suppress(OSError):
                (group / file[1:]).write_text(text)
        else:
            (group / file).write_text(text)


def detect(root: Path = ROOT) -> Cgroups:
    """Find out by doing: make a group, set each limit, put a process in. What fails is not supported."""
    own = _own_groups()
    version = 2 if (root / "cgroup.controllers").exists() else 1
    names = ("memory", "pids", "cpu")
    places = {name: _place(root, own, name, version) for name in names}
    parents = {name: place for name, place in places.items() if place is not None}
    trial = SandboxLimits(memory_mb=64, cpu=1.0, pids=64)
    found = []
    for limit, knob in knobs(trial, version).items():
        parent = parents.get(knob.controller)
        if parent is not None and _holds(parent, knob):
            found.append(limit)
    return Cgroups(parents, version, tuple(found))


def _own_groups() -> dict[str, str]:
    """controller -> this process's group; the v2 group under the empty name."""
    rows = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    return {name: row[2] for row in rows for name in row[1].split(",")}


def _place(root: Path, own: dict[str, str], controller: str, version: int) -> Path | None:
    if version == 1:
        return root / controller / own[controller].lstrip("/") if controller in own else None
    place = root / own.get("", "/").lstrip("/")
    for candidate in (place, place.parent if place != root else place):
        with contextlib.suppress(OSError):
            (candidate / "cgroup.subtree_control").write_text(f"+{controller}")
        with contextlib.suppress(OSError):
            if controller in (candidate / "cgroup.subtree_control").read_text().split():
                return candidate
    return None


def _holds(parent: Path, knob: Knob) -> bool:
    group = parent / f"longhaul-probe-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        return False
    try:
        _write(group, knob)
        with subprocess.Popen(["/bin/sh", "-c", "read x"], stdin=subprocess.PIPE) as child:
            (group / "cgroup.procs").write_text(str(child.pid))
            return True
    except OSError:
        return False
    finally:
        for _ in range(20):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.02)
