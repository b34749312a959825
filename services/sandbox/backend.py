"""What a way of isolating commands has to provide. One conformance suite (tests/contract/sandbox) runs on each."""

from collections.abc import Callable
from typing import Protocol

from agents.contracts.sandbox import Capabilities
from services.sandbox.home import Home
from services.sandbox.supervised.client import Supervisor
from services.sandbox.template import Laid


class Backend(Protocol):
    """Makes sandboxes' surroundings; starts, finds and ends the one supervisor under which a sandbox's commands run.

    `epoch` is the runner's: it grows with every start of it, and a supervisor obeys the highest that it has seen.
    """

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

    async def find(self, home: Home, epoch: int) -> Supervisor | None:
        """The supervisor of the sandbox that runs, with us as its controller; None: nothing runs.

        Raises:
            LonghaulError: ``SANDBOX_UNAVAILABLE``: something runs, and does not answer.
        """
        ...

    async def start(self, home: Home, epoch: int) -> Supervisor:
        """The supervisor of the sandbox: found, or started where nothing runs.

        Raises:
            LonghaulError: ``SPAWN_FAILED``, with what to do; ``SANDBOX_UNAVAILABLE``.
        """
        ...

    async def stop(self, home: Home) -> None:
        """End everything that runs in it; returns when that is so. Repeatable; nothing runs: no fault.

        Raises:
            LonghaulError: ``SANDBOX_UNAVAILABLE``: it could not be ended, or nobody can say.
        """
        ...

    def templates(self) -> tuple[str, ...]:
        """Those that a sandbox can have at this moment."""
        ...

    def pick(self, template: str) -> str:
        """The build that a new sandbox of this template gets.

        Raises:
            LonghaulError: ``TEMPLATE_NOT_FOUND``, with those that there are.
        """
        ...

    def base(self, home: Home) -> list[Laid]:
        """The read-only files of a sandbox that are ours: its template, and /etc."""
        ...

    async def reconcile(self, places: Callable[[], set[str]]) -> None:
        """End what runs here for no sandbox any more. `places` tells the names of all that there are (`Meta.place`). It
        is asked after what runs was listed: a sandbox is there before anything of it runs.

        Raises:
            LonghaulError: ``SANDBOX_UNAVAILABLE``: nobody can say what runs; the next time will do.
        """
        ...

    def environment(self, home: Home, extra: dict[str, str]) -> dict[str, str]:
        """All that a command finds in its environment."""
        ...

    def remove(self, home: Home) -> None:
        """Give back what `make` took outside the folders; nothing runs there any more. Repeatable."""
        ...

    def explain(self, output: str) -> str:
        """What to do about a sandbox that did not start and printed this."""
        ...
