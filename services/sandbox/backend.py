"""What a way of isolating commands has to provide. One conformance suite (tests/contract/sandbox) runs on each."""

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from agents.contracts.sandbox import Capabilities, ExecRequest
from services.sandbox.home import Home


@dataclass(frozen=True, slots=True)
class Plan:
    """What the keeper needs to start a command, all of it. `argv` may name the descriptors 3 (the seccomp program),
    4 (status lines) and 5 (held until the limits are set). `uid` and `stage` are used by root only: the user to become
    and (source, name) pairs to gather under the stage before that."""

    argv: list[str]
    timeout_s: float
    grace_s: float
    cap_bytes: int
    pipe_fd: int
    uid: int | None
    stage: list[tuple[str, str]]
    cgroups: list[str]
    nofile: int
    nproc: int
    seccomp: str

    def as_json(self) -> dict[str, Any]:
        """The form that goes to the keeper."""
        return asdict(self)


class Backend(Protocol):
    """Makes sandboxes' surroundings and plans their commands. Starts nothing itself: keepers do."""

    name: str

    def setup(self) -> None:
        """Lay down what is shared by all sandboxes; called once at start, repeatable."""
        ...

    def capabilities(self) -> Capabilities:
        """What this host can do, as far as can be told without running anything."""
        ...

    def make(self, home: Home) -> None:
        """Prepare a new sandbox whose folders exist. Repeatable. ``CAPABILITY_MISSING``."""
        ...

    def plan(self, home: Home, request: ExecRequest) -> Plan:
        """How to start one command."""
        ...

    def remove(self, home: Home) -> None:
        """Give back what `make` took outside the folders; nothing runs there any more. Repeatable."""
        ...

    def explain(self, output: str) -> str:
        """What to do about a sandbox that did not start and printed this."""
        ...
