"""How a tool reaches the world: through this, and through nothing else."""

from typing import Protocol

from agents.contracts.artifact import Artifact
from agents.contracts.message import Receipt
from agents.contracts.sandbox import ExecStatus, FileChange, FileText


class ToolContext(Protocol):
    """One tool call's hands. An adapter binds it to the call's logical key, its agent's fences and its sandbox, so a
    repeat of the same call finds what the first try did.

    Every method may raise `LonghaulError`: of class *tool* it becomes an observation (`registry.execute`), of any other
    class it is not the model's business and passes through.
    """

    async def run(self, command: str, timeout_s: float) -> ExecStatus:
        """Run a shell command in the workspace and wait for its end."""
        ...

    async def read(self, path: str, offset: int, limit: int) -> FileText:
        """Lines `offset` (from 1) to ``offset + limit - 1`` of a text file."""
        ...

    async def write(self, path: str, content: str) -> FileChange:
        """Create or replace a file."""
        ...

    async def edit(self, path: str, old: str, new: str) -> FileChange:
        """Replace the only occurrence of `old`. ``EDIT_NO_MATCH``, ``EDIT_AMBIGUOUS``."""
        ...

    async def send(self, to: str, text: str) -> Receipt:
        """Send a message; it goes out with the call's result. ``UNKNOWN_RECIPIENT``."""
        ...

    async def save(self, path: str, media_type: str | None) -> Artifact:
        """Keep a file as an artifact of the task."""
        ...
