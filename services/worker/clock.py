"""The real time."""

import time
from datetime import UTC, datetime


class SystemClock:
    """Implements `workflows.clock.Clock`."""

    def now(self) -> datetime:
        """Now, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()
