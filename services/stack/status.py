"""What runs: the launcher's own note of each process, and the memory of each from the kernel."""

import json
import os
import textwrap
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from services.stack.layout import DataDir
from services.stack.program import runnable


class UnitStatus(BaseModel):
    """One process with its children. `since` is when it entered its state (Unix seconds); `detail` is why it is not
    ready, where that is known; PSS in bytes."""

    model_config = ConfigDict(frozen=True)

    name: str
    pid: int | None
    state: str
    since: float
    restarts: int
    log: str
    detail: str = ""
    pss_bytes: int = 0
    processes: int = 1


class StackStatus(BaseModel):
    """The stack on one data directory."""

    model_config = ConfigDict(frozen=True)

    running: bool
    ready: bool = False
    data_dir: str
    api_url: str = ""
    ports: dict[str, int] = {}
    units: tuple[UnitStatus, ...] = ()
    pss_bytes: int = 0


def is_ready(data: DataDir, launcher_pid: int) -> bool:
    """Whether that launcher has said that everything is up."""
    noted = _noted(data)
    return noted.get("launcher_pid") == launcher_pid and noted.get("ready") is True


def report(data: DataDir) -> StackStatus:
    """What runs now."""
    holder = data.lock_holder()
    if holder is None:
        return StackStatus(running=False, data_dir=str(data.root))
    children, noted, run = _children(), _noted(data), data.run()
    if noted.get("launcher_pid") != holder:
        noted = {}  # of a launcher that was killed: the one that runs has not written its own yet
    launcher = {"pid": holder, "state": "ready", "since": data.lock_file.stat().st_mtime, "restarts": 0}
    units = [_unit("launcher", launcher | {"log": str(data.log("launcher"))}, [holder])]
    stored = noted.get("units", {})
    for name, unit in (stored if isinstance(stored, dict) else {}).items():
        units.append(_unit(name, unit, list(_tree(unit["pid"], children)) if unit["pid"] else []))
    return StackStatus(
        running=True,
        ready=noted.get("ready") is True,
        data_dir=str(data.root),
        api_url=run.api_url,
        ports=run.ports,
        units=tuple(units),
        pss_bytes=sum(unit.pss_bytes for unit in units),
    )


def table(status: StackStatus) -> list[str]:
    """The same for a person."""
    if not status.running:
        return [f"Nothing runs on {status.data_dir}. {runnable('Start it with `longhaul up`.')}"]
    lines = [f"{status.api_url}  ({'ready' if status.ready else 'not ready'})  data in {status.data_dir}", ""]
    lines.append(f"{'process':<12}{'pid':>8}  {'state':<11}{'for':>9}{'restarts':>10}{'PSS':>10}")
    for unit in status.units:
        extra = f"  in {unit.processes} processes" if unit.processes > 1 else ""
        lines.append(
            f"{unit.name:<12}{unit.pid or '-':>8}  {unit.state:<11}{_age(time.time() - unit.since):>9}"
            f"{unit.restarts:>10}{unit.pss_bytes / 1e6:>7.0f} MB{extra}"
        )
        lines += [f"{'':<12}{unit.detail}"] if unit.detail else []
    lines.append(f"{'all':<12}{'':>8}  {'':<11}{'':>9}{'':>10}{status.pss_bytes / 1e6:>7.0f} MB")
    ports = ", ".join(f"{name}\xa0{port}" for name, port in status.ports.items())
    wrapped = textwrap.wrap(f"ports: {ports}", 100, subsequent_indent=" " * 7)
    return [*lines, "", *(line.replace("\xa0", " ") for line in wrapped)]


def unready(data: DataDir) -> list[str]:
    """Each process that is not ready, in a line: its state, why, and where its log is."""
    return [
        f"  {unit.name}: {unit.state}, restarts {unit.restarts}, {unit.detail or 'no answer'} (its log: {unit.log})"
        for unit in report(data).units
        if unit.state != "ready"
    ]


def _unit(name: str, noted: Mapping[str, Any], tree: list[int]) -> UnitStatus:
    return UnitStatus(name=name, **noted, pss_bytes=sum(pss(member) for member in tree), processes=len(tree))


def pss(pid: int) -> int:
    """Proportional set size in bytes: shared pages count by share. 0 where we may not look."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _noted(data: DataDir) -> dict[str, object]:
    with suppress(OSError, ValueError):
        noted = json.loads((data.root / "status.json").read_text(encoding="utf-8"))
        return noted if isinstance(noted, dict) else {}
    return {}


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError):
                stat = Path(f"/proc/{entry}/stat").read_text()
                found[int(stat[stat.rindex(")") + 2 :].split()[1])].append(int(entry))
    return found


def _tree(pid: int, children: dict[int, list[int]]) -> Iterator[int]:
    yield pid
    for child in children.get(pid, ()):
        yield from _tree(child, children)


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
