"""Every process of the stack killed under a running task: nothing is lost, and nothing happens twice."""

import pytest

from tests.fault.conftest import Begin
from tests.fault.ended import examine
from tests.fault.play import Move, long, short, slow

pytestmark = pytest.mark.timeout(240)  # a busy machine takes its time to start a stack

SERVERS = ("postgres", "temporal", "nats", "seaweedfs")
WRITES = 16
"""Short commands in a row: each is a command, an object and two transactions."""
WRITE_S = 0.2
"""How long each takes at least, so that on a fast machine the kill does not come when all is over."""


def with_long(word: str) -> list[Move]:
    return [short(f"{word}-1"), long(f"{word}-long"), short(f"{word}-2"), short(f"{word}-3")]


def marks_with_long(word: str) -> list[str]:
    return [f"{word}-{part}" for part in ("1", "long-begin", "long-end", "2", "3")]


def with_writes(word: str) -> list[Move]:
    return [short(mark, WRITE_S) for mark in marks_of_writes(word)]


def marks_of_writes(word: str) -> list[str]:
    return [f"{word}-{n}" for n in range(1, WRITES + 1)]


def with_few(word: str) -> list[Move]:
    return [short(mark) for mark in marks_of_few(word)]


def marks_of_few(word: str) -> list[str]:
    return [f"{word}-{n}" for n in (1, 2, 3)]


def with_slow(word: str) -> list[Move]:
    return [short(f"{word}-1"), slow(f"{word}-2"), short(f"{word}-3")]


@pytest.mark.parametrize("names", [("worker-1", "worker-2"), ("runner",), ("api", "relay")], ids="-and-".join)
def test_killed_in_the_middle_of_a_command(begin: Begin, names: tuple[str, ...]) -> None:
    case = begin("-".join(names), with_long, marks_with_long)
    case.until_middle()
    case.kill(*names)
    assert len(case.marks_now()) == 2, "the command had ended before the kill"
    examine(case)
    assert "api" not in names or case.watch.connections > 1


def test_the_worker_of_a_command_killed_in_its_middle(begin: Begin) -> None:
    case = begin("worker", with_long, marks_with_long)
    case.until_commands(1)
    worker = case.who_works()
    case.until_middle()
    case.kill_worker(worker)
    assert len(case.marks_now()) == 2, "the command had ended before the kill"
    examine(case)


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_killed_under_writes(begin: Begin, name: str) -> None:
    case = begin(name, with_writes, marks_of_writes)
    case.until_commands(WRITES // 3)
    case.kill(name)
    assert len(case.marks_now()) < WRITES, "the writes were over before the kill"
    examine(case)


@pytest.mark.parametrize(
    "names", [("temporal",), ("postgres",), ("runner",), ("worker-1", "worker-2")], ids="-and-".join
)
def test_killed_while_a_review_begins(begin: Begin, names: tuple[str, ...]) -> None:
    """Between two agents: the workspace is copied, the task's check runs, workflows take turns."""
    case = begin("review-" + "-".join(names), with_few, marks_of_few)
    case.until_event("review.started")
    case.kill(*names)
    examine(case)


def test_the_model_killed_in_the_middle_of_a_reply(begin: Begin) -> None:
    case = begin("model", with_slow, marks_of_few)
    case.until_streaming()
    case.kill("replay")
    examine(case)


def test_the_worker_killed_in_the_middle_of_a_reply(begin: Begin) -> None:
    case = begin("asker", with_slow, marks_of_few)
    case.until_commands(1)
    worker = case.who_works()
    case.until_streaming()
    case.kill_worker(worker)
    examine(case)


def test_the_launcher_killed_while_no_command_runs(begin: Begin) -> None:
    case = begin("launcher", with_slow, marks_of_few)
    case.until_streaming()
    case.kill_launcher()
    examine(case)


def test_the_launcher_killed_in_the_middle_of_a_command(begin: Begin) -> None:
    """The command ends with the launcher, and the model is told so: it does what is left with another command."""

    def moves(word: str) -> list[Move]:
        return [short(f"{word}-1"), long(f"{word}-long", killed=True), short(f"{word}-2")]

    case = begin("launcher-exec", moves, lambda word: [f"{word}-{part}" for part in ("1", "long-begin", "2")])
    case.until_middle()
    case.kill_launcher()
    examine(case)
