"""The stress run in small: everything that it judges, but for what only a long run shows."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.stress import judge
from tests.stress.judge import Ran
from tests.stress.report import judged
from tests.stress.run import run
from tests.stress.size import Size
from tests.support.stack import Stack

SMALL = Size(tasks=16, tenants=3, running=3, minutes=2.0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.timeout(300)
def test_many_tasks_of_several_tenants_all_finish_in_turns(fault_stack: Callable[..., Stack]) -> None:
    stack = fault_stack({"LONGHAUL_RUNNING_TASKS": str(SMALL.running)})
    record = asyncio.run(run(stack, SMALL, print))
    verdict = judged(record, SMALL, footprints=False)
    print("\n".join([*verdict.lines, verdict.line]))
    assert verdict.problems == []


def first_come_first_served(tasks: int, places: int, each_s: float) -> list[Ran]:
    """A flood, and then ten tasks of another tenant."""
    found = []
    for n in range(tasks):
        tenant, created = ("flood", NOW) if n < tasks - 10 else ("few", NOW + timedelta(seconds=1))
        at = NOW + timedelta(seconds=2 + each_s * (n // places), milliseconds=n)
        found.append(Ran(tenant, created, at, at + timedelta(seconds=each_s - 0.5)))
    return found


def test_what_comes_first_is_not_fair() -> None:
    ran = first_come_first_served(100, 5, 10.0)
    assert len(judge.unfair(ran)) > 60
    assert judge.last_turn(ran, "flood") == (100, 20)


def test_turns_are_fair() -> None:
    ran = first_come_first_served(100, 5, 10.0)
    order = ["flood"] * 5 + ["few", "flood"] * 10 + ["flood"] * 75
    turns = [replace(task, tenant=tenant) for task, tenant in zip(ran, order, strict=True)]
    created = {"flood": NOW, "few": NOW + timedelta(seconds=3)}
    turns = [replace(task, created=created[task.tenant]) for task in turns]
    assert judge.unfair(turns) == []
    assert judge.last_turn(turns, "flood") == (19, 20)


def test_the_most_at_once_is_counted() -> None:
    ran = first_come_first_served(100, 5, 10.0)
    assert judge.most_at_once(ran) == 5
    assert judge.most_at_once([*ran, replace(ran[0])]) == 6
