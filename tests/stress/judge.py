"""What the rows of a run tell: who had a place when, and whether the turns were fair. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

GRACE = timedelta(seconds=2)
"""The queue decides from what was committed a moment before: a task that came or ended is seen so late at most."""


@dataclass(frozen=True)
class Ran:
    """A task that has run: when it was accepted, got its place, and ended."""

    tenant: str
    created: datetime
    admitted: datetime
    ended: datetime


def most_at_once(ran: Sequence[Ran]) -> int:
    """How many had a place at the same time, at most."""
    changes = sorted([(task.admitted, 1) for task in ran] + [(task.ended, -1) for task in ran])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def unfair(ran: Sequence[Ran]) -> list[Ran]:
    """Tasks that got a place which belonged to another tenant: it had been waiting, and held fewer places."""
    return [task for task in ran if _was_unfair(task, ran)]


def _was_unfair(given: Ran, ran: Sequence[Ran]) -> bool:
    at = given.admitted
    had = Counter(task.tenant for task in ran if task is not given and task.admitted <= at < task.ended)
    had_perhaps = Counter(task.tenant for task in ran if task.admitted <= at < task.ended + GRACE)
    waiting = {task.tenant for task in ran if task.created < at - GRACE and task.admitted > at}
    return any(had_perhaps[tenant] < had[given.tenant] for tenant in waiting - {given.tenant})


def last_turn(ran: Sequence[Ran], flood: str) -> tuple[int, int]:
    """Of the tenants beside the flood, from when the first of their tasks waits: how many tasks were started until the
    last of theirs was, and how many that is where every tenant takes its turn."""
    others = Counter(task.tenant for task in ran if task.tenant != flood)
    since = min(task.created for task in ran if task.tenant != flood)
    order = [task.tenant for task in sorted(ran, key=lambda task: task.admitted) if task.admitted >= since]
    took = max(place for place, tenant in enumerate(order, 1) if tenant != flood)
    return took, max(others.values()) * (len(others) + 1)
