"""A stack of its own for the tests that kill its parts, and the line that says what came of it."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from agents.contracts.approval import ToolPolicy
from tests.fault.case import PlayCase
from tests.fault.play import Move, Play
from tests.fault.tally import Tally
from tests.support.stack import Stack, new_data_dir

SHORT = 10
"""Kills of the matrix where nobody asks for more: one of each process."""

_TALLY = pytest.StashKey[Tally]()

Begin = Callable[..., PlayCase]
"""``begin("name", moves, marks)`` submits a task; `moves` and `marks` are made from a word that nobody else uses."""


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    return pytestconfig.stash.setdefault(_TALLY, Tally())


@pytest.fixture(scope="package")
def killed_stack() -> Iterator[Stack]:
    """One for all tests here: whatever was killed is back before the next test begins."""
    root = new_data_dir()
    recordings = root.parent / "recordings"
    recordings.mkdir()
    env = {"LONGHAUL_RECORDINGS_DIR": str(recordings), "LONGHAUL_REPLAY_PACE_MS": "1"}
    running = Stack(root, env=env)
    try:
        yield running.start()
        assert running.end() == 0, running.said()
        running.assert_no_leftovers()
    finally:
        running.remove()


@pytest.fixture
def begin(killed_stack: Stack, tally: Tally) -> Iterator[Begin]:
    cases: list[PlayCase] = []

    def submit(
        name: str,
        moves: Callable[[str], list[Move]],
        marks: Callable[[str], list[str]],
        tools: Mapping[str, ToolPolicy] | None = None,
    ) -> PlayCase:
        word = f"{name}-{secrets.token_hex(3)}"
        play = Play(word, tuple(moves(word)), tuple(marks(word)), tools or {})
        play.record(recordings_of(killed_stack))
        cases.append(PlayCase(killed_stack, tally, play))
        return cases[-1]

    yield submit
    for case in cases:
        case.close()
    killed_stack.wait(lambda: all(u.state == "ready" for u in killed_stack.report().units), 60, "all is back")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--kills", type=int, default=SHORT, help="kills of the matrix (tests/fault/test_matrix.py)")
    group.addoption("--seed", type=int, default=None, help="the seed of a matrix that is to be repeated")
    group.addoption("--victims", default="", help="kill only these (worker-1,worker-2), each when the last is over")


def recordings_of(stack: Stack) -> Path:
    """Where its replay engine finds recordings."""
    return stack.data.root.parent / "recordings"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    tally = config.stash.get(_TALLY, None)
    if tally is None or not tally.injected:
        return
    terminalreporter.section("faults")
    for line in [*tally.moments, *tally.table(), tally.line()]:
        terminalreporter.write_line(line)
