"""The two kinds of contract: what a user sends (strict) and what we store or put on a wire (open to additions)."""

from typing import Annotated, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

UtcTime = AwareDatetime
"""An aware time; producers pass UTC. Pure code receives it as an argument and never asks a clock."""

Micro = Annotated[int, Field(ge=0)]
"""Money in integer millionths of the account's currency."""

Count = Annotated[int, Field(ge=0)]
"""A non-negative integer: tokens, bytes, turns."""


class Edge(BaseModel):
    """A body that a user or a model wrote: unknown fields are refused and named."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Wire(BaseModel):
    """A stored or inter-process model: unknown fields are ignored, so it changes only by addition."""

    model_config = ConfigDict(frozen=True, extra="ignore")


M = TypeVar("M", bound=BaseModel)


def read_stored(model: type[M], stored: object) -> M:
    """A model from what a row, a blob (JSON text or bytes) or a wire held: unknown fields are ignored all the way down,
    also in an `Edge` inside it, because a newer process may have written it.

    Raises:
        pydantic.ValidationError: where it does not fit otherwise.
    """
    if isinstance(stored, str | bytes):
        return model.model_validate_json(stored, extra="ignore")
    return model.model_validate(stored, extra="ignore")


EXCERPT_CHARS = 2_000


def excerpt(text: str) -> str:
    """At most `EXCERPT_CHARS` characters of a text: its head and its tail."""
    if len(text) <= EXCERPT_CHARS:
        return text
    half = (EXCERPT_CHARS - 40) // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters …\n{text[-half:]}"
