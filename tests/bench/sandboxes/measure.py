"""Timing of single calls, and what processes hold."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Spread:
    """Milliseconds of many calls."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, found: list[float]) -> "Spread":
        """Of what was measured."""
        ordered = sorted(found)
        return cls(*(ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.95, 0.99)))

    def __str__(self) -> str:
        return f"p50 {self.p50:.2f}, p95 {self.p95:.2f}, p99 {self.p99:.2f} ms"


async def calls(count: int, call: Callable[[int], Awaitable[object]], pause_s: float = 0.0) -> Spread:
    """One after the other."""
    found = []
    for number in range(count):
        begun = time.perf_counter()
        await call(number)
        found.append((time.perf_counter() - begun) * 1000)
        await asyncio.sleep(pause_s)
    return Spread.of(found)


def spread(count: int, call: Callable[[], object]) -> Spread:
    """The same for calls that block."""
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        found.append((time.perf_counter() - begun) * 1000)
    return Spread.of(found)


async def rate(count: int, width: int, call: Callable[[int], Awaitable[object]]) -> float:
    """How many a second, `width` at once."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await call(number)

    begun = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(width)))
    return count / (time.perf_counter() - begun)


def held_kb(pids: list[int]) -> int:
    """The proportional set size of processes."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total


def pids_with(*words: str) -> list[int]:
    """The processes whose command line holds all the words."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                line = (folder / "cmdline").read_bytes().decode("utf-8", "replace")
                if all(word in line for word in words):
                    found.append(int(folder.name))
    return found
