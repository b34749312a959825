"""What a tool is: a contract, a model of its arguments, and a handler."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from agents.contracts.base import Edge
from agents.contracts.tool import ToolContract, ToolResult
from agents.tools.context import ToolContext

OBSERVATION_CAP_BYTES = 12 * 1024
"""What a model is shown of one call at most: it fits a row with room for the rest, and ten of them fit any window."""

A = TypeVar("A", bound=BaseModel)


class Arguments(Edge):
    """A tool's arguments as a model writes them. Types are strict: ``"60"`` is not a number, ``0`` is not False."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class Tool(Generic[A]):
    """A tool. `run` is None for a control tool: the turn loop acts on its typed arguments itself."""

    contract: ToolContract
    arguments: type[A]
    run: Callable[[ToolContext, A], Awaitable[ToolResult]] | None = None

    @property
    def name(self) -> str:
        """The name it is called by."""
        return self.contract.name
