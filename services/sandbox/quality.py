"""What state a sandbox is in beside its workspace: looked at from inside, by a command, and from the host."""

import asyncio
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import StateReport, StateRow
from services.sandbox.backend import Backend
from services.sandbox.execs import Execs
from services.sandbox.home import Home
from services.sandbox.template import CACHE, MADE, VENV, Laid

LOOK = "date +%s%N; echo $$; grep -hE '^(Name|Pid|PPid):' /proc/[0-9]*/status 2>/dev/null; echo; cat /proc/self/mounts"
LOOK_S, TOLD_S = 10.0, 30.0
MAX_ENTRIES = 100_000
SKEW_MS = 1_000
ROOM = 0.05
_READ_ONLY = frozenset({"/", "/usr", "/etc", VENV, MADE})
_NAMED = 5


class Process(NamedTuple):
    """A process as it is seen from inside."""

    name: str
    pid: int
    parent: int


class Files(NamedTuple):
    """Files that were found, and a few names."""

    number: int = 0
    bytes: int = 0
    names: tuple[str, ...] = ()


class Room(NamedTuple):
    """The shares of a disk that are free."""

    bytes: float
    inodes: float


@dataclass(frozen=True, slots=True)
class Inside:
    """What a command saw: the processes without itself and its own, and what is mounted writable that must not be."""

    clock_ns: int
    processes: tuple[Process, ...]
    writable: tuple[str, ...]


class Quality:
    """Looks at sandboxes."""

    def __init__(self, backend: Backend, execs: Execs) -> None:
        self._backend = backend
        self._execs = execs

    async def report(self, home: Home) -> StateReport:
        """The state of a sandbox, whatever runs in it.

        Raises:
            LonghaulError: ``SANDBOX_UNAVAILABLE``, ``SPAWN_FAILED``: nobody can look inside.
        """
        before = time.time_ns()
        said, known = await self._execs.look(home, LOOK, LOOK_S)
        after = time.time_ns()
        inside = take(said)
        base, outside, room = await asyncio.to_thread(self._from_host, home)
        return StateReport(
            at=datetime.now(UTC),
            rows=(
                processes_row(inside.processes, known),
                base_row(base, inside.writable),
                clock_row(inside.clock_ns, before, after),
                outside_row(outside),
                room_row(room),
            ),
        )

    async def told(self, home: Home) -> StateReport:
        """The state, or why nobody can say."""
        try:
            async with asyncio.timeout(TOLD_S):
                return await self.report(home)
        except (LonghaulError, OSError, TimeoutError) as error:
            why = error.detail if isinstance(error, LonghaulError) else f"it could not be seen ({type(error).__name__})"
            return StateReport(at=datetime.now(UTC), fault=why[:200])

    def _from_host(self, home: Home) -> tuple[Files, Files, Room]:
        disk = os.statvfs(home.workspace)
        room = Room(disk.f_bavail / (disk.f_blocks or 1), disk.f_favail / disk.f_files if disk.f_files else 1.0)
        return changed(self._backend.base(home)), written(home.private), room


def take(said: str) -> Inside:
    """What `LOOK` printed.

    Raises:
        LonghaulError: ``SANDBOX_UNAVAILABLE``: it is not that.
    """
    head, _, mounts = said.partition("\n\n")
    try:
        clock, own, *lines = head.splitlines()
        found = [Process(*_numbers(lines[n : n + 3])) for n in range(0, len(lines) - 2, 3)]
        me = int(own)
        others = tuple(p for p in found if p.pid not in (1, me) and p.parent != me)
        return Inside(int(clock), others, tuple(sorted(_writable(mounts.splitlines()))))
    except (ValueError, IndexError):
        raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, "what is said inside of its state is not readable") from None


def _numbers(lines: Sequence[str]) -> tuple[str, int, int]:
    name, pid, parent = (line.partition(":")[2].strip() for line in lines)
    return name, int(pid), int(parent)


def _writable(mounts: Iterable[str]) -> set[str]:
    last = {words[1]: words[3] for line in mounts if len(words := line.split(" ")) > 3}
    return {at for at, options in last.items() if at in _READ_ONLY and options.split(",")[0] != "ro"}


def changed(base: Iterable[Laid]) -> Files:
    """Files of the base that changed after they were laid down. Nobody sets the time of a change but the kernel."""
    later = [(laid, path) for laid in base for path in _later(laid)]
    names = (os.path.normpath(os.path.join(laid.inside, os.path.relpath(path, laid.folder))) for laid, path in later)
    return Files(len(later), 0, tuple(sorted(islice(names, _NAMED))))


def _later(laid: Laid) -> Iterator[str]:
    folders = [str(laid.folder)]
    if os.lstat(laid.folder).st_ctime_ns > laid.at_ns:
        yield str(laid.folder)
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_ctime_ns > laid.at_ns:
                    yield entry.path
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def written(private: Path) -> Files:
    """Files outside the workspace, without those that every sandbox has from the start; the first `MAX_ENTRIES`."""
    count = size = 0
    names: list[str] = []
    for at, folders, files, fd in os.fwalk(private):
        inside = os.path.relpath(at, private)
        if inside == "home":
            folders[:] = [name for name in folders if name != CACHE]
        for name in files:
            info = os.lstat(name, dir_fd=fd)
            count, size = count + 1, size + info.st_size
            names.append(os.path.normpath(os.path.join("/tmp", inside, name)))
        if count >= MAX_ENTRIES:
            break
    return Files(count, size, tuple(names[:_NAMED]))


def processes_row(seen: Sequence[Process], known: int) -> StateRow:
    """`known`: how many commands the supervisor knows; each has a keeper, which is part of it and not left over."""
    keepers = [p for p in seen if p.name == "keeper" and p.parent == 1][:known]
    left = [p.name for p in seen if p not in keepers]
    return _row("processes", not left, len(left), 0, left)


def base_row(found: Files, writable: Sequence[str]) -> StateRow:
    """Nothing may have changed, and nothing of it may be open to changes."""
    names = [*(f"{at} is writable" for at in writable), *found.names]
    return _row("base", not names, found.number + len(writable), 0, names)


def clock_row(inside_ns: int, before_ns: int, after_ns: int) -> StateRow:
    """How far the clock inside is from the moments on the host between which it was read."""
    skew_ms = max(before_ns - inside_ns, inside_ns - after_ns, 0) // 1_000_000
    where = "behind" if inside_ns < before_ns else "ahead"
    return _row("clock", skew_ms < SKEW_MS, skew_ms, 0, [f"{skew_ms} ms {where}"] if skew_ms >= SKEW_MS else [])


def outside_row(found: Files) -> StateRow:
    """What no copy and no snapshot holds."""
    return _row("outside", not found.number, found.number, found.bytes, found.names)


def room_row(room: Room) -> StateRow:
    """Whether the disk has head-room."""
    short = [f"{share:.1%} of the {what} are free" for what, share in room._asdict().items() if share < ROOM]
    return _row("room", not short, 0, 0, short)


def _row(matter: str, clean: bool, count: int, size: int, names: Sequence[str]) -> StateRow:
    shown = ", ".join(name.encode("utf-8", "replace").decode()[:60] for name in names[:_NAMED])
    more = f" and {count - _NAMED} more" if count > _NAMED else ""
    return StateRow.model_validate(
        {"matter": matter, "clean": clean, "count": count, "bytes": size, "detail": (shown[:180] + more)}
    )
