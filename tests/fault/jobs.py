"""What tasks under faults are made of: the demos as a user runs them, and the scripted play."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import gpu.engine
from agents.contracts.recording import Recording
from agents.contracts.task import TaskSpec
from services.cli.demo.catalogue import Demo, chosen
from services.client import Client

RECORDINGS = Path(gpu.engine.__file__ or "").with_name("recordings")


class Job(Protocol):
    """A task to be submitted."""

    @property
    def name(self) -> str:
        """The name of its recording."""
        ...

    @property
    def calls(self) -> Sequence[str]:
        """Every reply that its team asks for, by coordinate."""
        ...

    @property
    def width(self) -> int:
        """How many of them may be under way at once."""
        ...

    def spec(self, client: Client) -> TaskSpec:
        """What is submitted; inputs are uploaded first."""
        ...


class DemoJob:
    """A demo."""

    width = 4

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self.name = demo.name
        path = RECORDINGS / f"{demo.name}.json"
        self.calls = tuple(entry.call for entry in Recording.model_validate_json(path.read_bytes()).entries)

    def spec(self, client: Client) -> TaskSpec:
        """As ``longhaul demo`` submits it."""
        return self._demo.spec(client)


def demos() -> list[DemoJob]:
    """All there are."""
    return [DemoJob(demo) for demo in chosen(None)]
