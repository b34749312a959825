"""Identifiers and the logical keys that make every effect of a task happen once.

A key names a place in the task, not an attempt to get there, so a retry computes the same key and finds
what the first try left: ``task/epoch/role/revision.step/round/turn`` and then ``/m{k}`` for the k-th model
call of the turn or ``/c{i}`` for the i-th tool call of its reply.
"""

import hashlib
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from agents.contracts.base import Wire

Id = Annotated[str, Field(pattern=r"^[a-z]+_[A-Za-z0-9]{8,40}$", max_length=60)]
"""A prefixed id such as ``task_01ARZ3NDEK``; letters, digits and `_` only, so it is safe in a NATS subject."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

StepId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
"""A step's name inside a plan."""

PLAN_STEP = "plan"
"""The step name under which the planner runs."""

FINAL_STEP = "final"
"""The step name under which the whole task is reviewed."""


class Role(StrEnum):
    """Who takes a turn."""

    PLANNER = "planner"
    EXECUTOR = "executor"
    REVIEWER = "reviewer"


class Place(Wire):
    """Where in a task an agent works; its `path` is the stem of every key of that agent."""

    task_id: str
    epoch: int = 0
    role: Role
    revision: int = 1
    step: str

    @property
    def path(self) -> str:
        """``task/epoch/role/revision.step``."""
        return f"{self.task_id}/{self.epoch}/{self.role.value}/{self.revision}.{self.step}"

    @property
    def agent_id(self) -> str:
        """The agent's id: derived from its place, so that starting an agent twice finds the same one."""
        return "agent_" + hashlib.sha256(self.path.encode()).hexdigest()[:24]


def turn_key(place: Place, round_no: int, turn: int) -> str:
    """The key of one turn. `round_no` and `turn` count from 1; `turn` starts again with each round."""
    return f"{place.path}/{round_no}/{turn}"


def model_key(place: Place, round_no: int, turn: int, k: int) -> str:
    """The key of the k-th model call (from 1) of a turn."""
    return f"{turn_key(place, round_no, turn)}/m{k}"


def call_key(place: Place, round_no: int, turn: int, i: int) -> str:
    """The key of the i-th tool call (from 0) of a turn's reply."""
    return f"{turn_key(place, round_no, turn)}/c{i}"


def coordinate(place: Place, round_no: int, turn: int, k: int) -> str:
    """The value of the ``X-Longhaul-Call`` header: ``role/revision.step/round/turn/m{k}``."""
    return f"{place.role.value}/{place.revision}.{place.step}/{round_no}/{turn}/m{k}"


def short_digest(key: str) -> str:
    """A file-name-safe name for a key: 32 hex digits."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]
