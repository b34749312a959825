"""Processes killed while a call waits for a person: what ran before it is not run again, what is approved runs once."""

import pytest

from tests.fault.conftest import Begin
from tests.fault.ended import examine
from tests.fault.play import Move, batch, short

pytestmark = pytest.mark.timeout(240)

WORKERS = ("worker-1", "worker-2")


def with_batch(word: str) -> list[Move]:
    return [batch(f"{word}-1", f"{word}-2"), short(f"{word}-3")]


def marks(word: str) -> list[str]:
    return [f"{word}-{n}" for n in (1, 2, 3)]


@pytest.mark.parametrize("names", [WORKERS, ("relay", "api")], ids="-and-".join)
def test_killed_while_calls_wait(begin: Begin, names: tuple[str, ...]) -> None:
    """While the first waits; in the middle of the batch; after a decision, before the call can have run."""
    case = begin("asks", with_batch, marks, {"shell": "ask"})
    first = case.until_asked(2)
    case.kill(*names)
    case.decide(first)
    case.until_commands(1)
    second = case.until_asked(2)
    assert second.call_index == 1
    assert case.marks_now() == [case.play.marks[0]]
    case.kill(*names)
    case.decide(second)
    third = case.until_asked(3)
    case.decide(third)
    case.kill(*names)
    examine(case)
    assert [a.state.value for a in case.client.approvals(case.id).data] == ["approved"] * 3
