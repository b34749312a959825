"""What each process of the stack holds: memory (PSS) and open files, with those of its children."""

import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

from services.stack.status import UnitStatus
from tests.support.stack import Stack

MB = 1e6


@dataclass(frozen=True)
class Held:
    """One process at one moment: bytes of PSS, open files, and seconds of CPU so far."""

    pss: int
    files: int
    cpu_s: float


@dataclass(frozen=True)
class Sample:
    """All of them at one moment of a run in which `done` tasks have ended. `full`: all places are taken."""

    at: float
    done: int
    full: bool
    held: dict[str, Held]


def sample(stack: Stack, done: int, full: bool) -> Sample:
    """Look now."""
    held = {unit.name: Held(unit.pss_bytes, *_of_processes(unit)) for unit in stack.report().units}
    return Sample(time.monotonic(), done, full, held)


def _of_processes(unit: UnitStatus) -> tuple[int, float]:
    files, cpu_s = 0, 0.0
    for process in _processes(unit):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            ended = times.children_user + times.children_system if unit.name != "launcher" else 0.0
            cpu_s += times.user + times.system + ended
            files += process.num_fds()
    return files, cpu_s


def _processes(unit: UnitStatus) -> list[psutil.Process]:
    """A process with its children; the launcher's are units themselves."""
    try:
        process = psutil.Process(unit.pid)
        return [process, *(process.children(recursive=True) if unit.name != "launcher" else ())]
    except psutil.NoSuchProcess:
        return []


@dataclass(frozen=True)
class Growth:
    """One process in three windows of a run: at its start, early and late under full load."""

    name: str
    start: Held
    early: Held
    late: Held

    @property
    def problems(self) -> list[str]:
        """Where it is not flat: a tenth and a little may come on top from early to late."""
        found = []
        if self.late.pss > self.early.pss * 1.1 + ALLOWED_MB.get(self.name, OURS_MB) * MB:
            found.append(f"{self.name}: memory from {self.early.pss / MB:.0f} to {self.late.pss / MB:.0f} MB")
        if self.late.files > self.early.files * 1.1 + FILES:
            found.append(f"{self.name}: open files from {self.early.files} to {self.late.files}")
        return found


OURS_MB = 8.0
FILES = 16
ALLOWED_MB = {"temporal": 40.0, "postgres": 48.0, "seaweedfs": 40.0, "nats": 16.0}
"""Servers with caches that fill up to a limit, which a run of minutes does not reach."""


def growths(samples: Sequence[Sample], tasks: int) -> list[Growth]:
    """Of each process. Early is when a quarter to a half of the tasks have ended, late the last fifth of the time in
    which all places are taken; empty where the run was too short for both."""
    full = [one for one in samples if one.full]
    early = [one for one in full if tasks / 4 <= one.done <= tasks / 2]
    late = full[-max(1, len(full) // 5) :]
    if not early or late[0].done <= early[-1].done:
        return []
    return [Growth(name, samples[0].held[name], _middle(early, name), _middle(late, name)) for name in samples[0].held]


def _middle(samples: Sequence[Sample], name: str) -> Held:
    held = [one.held[name] for one in samples]
    pss, files = (round(statistics.median(getattr(one, what) for one in held)) for what in ("pss", "files"))
    return Held(pss, files, held[-1].cpu_s)
