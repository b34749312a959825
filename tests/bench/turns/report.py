"""How a benchmark prints its figures, and how much work it does."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Tasks at once, turns of each, how often each side is measured; turns of the long agent and of each of its bursts,
    and how many of these are compared."""

    tasks: int = 10
    turns: int = 40
    rounds: int = 5
    long: int = 2_000
    burst: int = 50
    pairs: int = 5


TINY = Size(tasks=2, turns=3, rounds=1, long=24, burst=4, pairs=1)
"""So little that it proves only that the benchmark still runs."""


@dataclass
class Cost:
    """Of one run: wall and our own CPU, in ms a turn."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def measured(turns: int) -> Iterator[Cost]:
    """Fills a `Cost`."""
    cost = Cost()
    wall, cpu = time.perf_counter(), time.process_time()
    yield cost
    cost.wall = (time.perf_counter() - wall) * 1000 / turns
    cost.cpu = (time.process_time() - cpu) * 1000 / turns


def middle(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The pair with the median ratio: ours and theirs, measured one right after the other."""
    ordered = sorted(pairs, key=lambda pair: pair[0] / pair[1])
    return ordered[len(ordered) // 2]


def progress(words: str) -> None:
    """Say how far it is."""
    print(f"  … {words}", file=sys.stderr, flush=True)


def figure(name: str, ours: float, unit: str, against: str = "none", theirs: float = 0.0) -> float:
    """Print a figure's line; its ratio, 0 where nothing is comparable."""
    ratio = ours / theirs if theirs else 0.0
    print(
        f"BENCH {name} ours={ours:.3f} unit={unit} against={against} theirs={theirs:.3f} ratio={ratio:.3f}", flush=True
    )
    return ratio


def target(words: str, met: bool) -> None:
    """Print whether a target is met, and how busy the machine is: a busy one makes every figure of wall time worse."""
    load = os.getloadavg()[0]
    verdict = "met" if met else "NOT MET"
    print(f"  target {words}: {verdict} (load average {load:.1f} on {os.cpu_count()} CPUs)", flush=True)
