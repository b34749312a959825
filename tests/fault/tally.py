"""What the fault tests count, and the line they end with."""

import math
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts over all faults. A task is lost until its test has proved that it ended well."""

    injected: int = 0
    lost: int = 0
    repeated: int = 0
    unknown: int = 0
    gaps: int = 0
    resumes: list[tuple[str, float]] = field(default_factory=list)
    """Fault and seconds from it to the next event that a client saw."""

    @property
    def resume_p95_s(self) -> float:
        """The 95th percentile; 0 where nothing was measured."""
        seconds = sorted(s for _, s in self.resumes)
        return seconds[math.ceil(0.95 * len(seconds)) - 1] if seconds else 0.0

    def line(self) -> str:
        """The whole on one line."""
        return (
            f"FAULTS injected={self.injected} lost={self.lost} repeated={self.repeated} unknown={self.unknown} "
            f"gaps={self.gaps} resume_p95_s={self.resume_p95_s:.2f}"
        )
