"""Where attacks run: one Protocol over the backends."""

import base64
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Told:
    """How a command ended, as its backend reports it: the reason, and what it printed."""

    reason: str
    output: str


class Place(Protocol):
    """One sandbox that may be attacked. `limits` names the limits that it holds."""

    backend: str
    limits: frozenset[str]

    async def run(self, command: str, timeout_s: float) -> Told:
        """Run a shell command to its end."""
        ...


def program(source: str, *args: str) -> str:
    """A shell command that runs a Python program, whatever it contains."""
    packed = base64.b64encode(source.encode()).decode()
    words = " ".join(f"'{arg}'" for arg in args)
    return f"echo {packed} | base64 -d > /tmp/attack.py; exec python3 /tmp/attack.py {words} < /dev/null"
