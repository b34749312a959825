"""Time as a port: the loop asks this, so that a test can say what time it is."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The time, and the time that has passed."""

    def now(self) -> datetime:
        """Now, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        ...
