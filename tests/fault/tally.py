"""What the fault tests count, the line they end with, and a table of how long each kind of fault was felt."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Resume(NamedTuple):
    """From a fault to the next event that a client saw of a task; of several tasks, the last to go on."""

    victim: str
    task: str
    seconds: float


@dataclass
class Tally:
    """Counts over all faults. A task is lost until its test has proved that it ended well."""

    injected: int = 0
    lost: int = 0
    repeated: int = 0
    unknown: int = 0
    gaps: int = 0
    resumes: list[Resume] = field(default_factory=list)
    moments: list[str] = field(default_factory=list)
    """Each fault of the matrix with its moment, so that what came of it can be understood."""

    def line(self) -> str:
        """The whole on one line."""
        return (
            f"FAULTS injected={self.injected} lost={self.lost} repeated={self.repeated} unknown={self.unknown} "
            f"gaps={self.gaps} resume_p95_s={percentile([r.seconds for r in self.resumes], 95):.2f}"
        )

    def table(self) -> list[str]:
        """A line a victim: kills that were felt, and how long."""
        lines = [f"{'victim':<22} {'kills':>5} {'p50 s':>6} {'p95 s':>6} {'max s':>6}"]
        for victim in sorted({resume.victim for resume in self.resumes}):
            felt = [resume.seconds for resume in self.resumes if resume.victim == victim]
            figures = (percentile(felt, 50), percentile(felt, 95), max(felt))
            lines.append(f"{victim:<22} {len(felt):>5} " + " ".join(f"{figure:>6.2f}" for figure in figures))
        return lines


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that so many of all are not above; 0 where there is none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)] if ordered else 0.0
