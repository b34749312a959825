"""Whether a call may be made: the limits of its task against what is spent and reserved. Pure."""

from dataclasses import dataclass
from typing import Literal, Protocol

from agents.contracts.errors import ErrorCode, ErrorInfo
from agents.contracts.event import BudgetExhausted, BudgetWarned
from workflows.records import Intent

WARN_AT = 0.8


class TaskRow(Protocol):
    """What is read of a task's row under its lock."""

    tokens_limit: int | None
    cost_limit_micro: int | None
    turns_limit: int
    turns: int
    tokens: int
    cost_micro: int
    reserved_tokens: int
    reserved_cost_micro: int
    budget_warned: bool


@dataclass(frozen=True)
class Allowed:
    """The call may be made, with this much set aside for it."""

    tokens: int
    cost_micro: int
    tokens_left: int | None
    cost_left_micro: int | None
    turns_left: int


@dataclass(frozen=True)
class Exhausted:
    """A limit is reached: nothing more is spent."""

    event: BudgetExhausted
    error: ErrorInfo


Decision = Allowed | Exhausted | Literal["blocked"]


def decide(task: TaskRow, intent: Intent) -> Decision:
    """`blocked` where only other calls' reservations are in the way: when these settle, there may be room."""
    if intent.opens and task.turns >= task.turns_limit:
        return _exhausted("turns", task.turns, task.turns_limit, ErrorCode.TURN_LIMIT)
    tokens_left, cost_left = _left(task.tokens_limit, task.tokens), _left(task.cost_limit_micro, task.cost_micro)
    if tokens_left is not None and intent.least_tokens > tokens_left:
        return _exhausted("tokens", task.tokens, task.tokens_limit or 0, ErrorCode.BUDGET_EXHAUSTED)
    if cost_left is not None and _too_dear(intent.cost_micro, cost_left):
        return _exhausted("cost_micro", task.cost_micro, task.cost_limit_micro or 0, ErrorCode.BUDGET_EXHAUSTED)
    free_tokens = None if tokens_left is None else tokens_left - task.reserved_tokens
    free_cost = None if cost_left is None else cost_left - task.reserved_cost_micro
    if (free_tokens is not None and intent.least_tokens > free_tokens) or (
        free_cost is not None and _too_dear(intent.cost_micro, free_cost)
    ):
        return "blocked"
    return Allowed(
        tokens=intent.tokens if free_tokens is None else min(intent.tokens, free_tokens),
        cost_micro=intent.cost_micro,
        tokens_left=free_tokens,
        cost_left_micro=free_cost,
        turns_left=max(0, task.turns_limit - task.turns - (1 if intent.opens else 0)),
    )


def warning(task: TaskRow) -> BudgetWarned | None:
    """The one warning of a task, once four fifths of any limit are spent."""
    if task.budget_warned:
        return None
    spent = (
        ("tokens", task.tokens, task.tokens_limit),
        ("cost_micro", task.cost_micro, task.cost_limit_micro),
        ("turns", task.turns, task.turns_limit),
    )
    for name, used, limit in spent:
        if limit and used >= limit * WARN_AT:
            return BudgetWarned(limit=name, used=used, allowed=limit)
    return None


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(0, limit - used)


def _too_dear(cost: int, left: int) -> bool:
    """A limit of 0 refuses even what is free: 0 means that nothing may be spent."""
    return cost > left or left == 0


def _exhausted(limit: str, used: int, allowed: int, code: ErrorCode) -> Exhausted:
    detail = f"the task's limit {limit}={allowed} does not allow another call ({used} used)"
    return Exhausted(BudgetExhausted(limit=limit, used=used, allowed=allowed), ErrorInfo(code=code, detail=detail))
