"""The very first start ended at any moment, by Ctrl-C or by a kill: nothing is left running, and the next start works.

`FAULT_ROUNDS` says how many moments are tried (50 is a soak); the number of a round is its seed.
"""

import os
import random
import re
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.stack import Stack, new_data_dir, processes_of

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "2"))
USUAL_S = 6.0
"""About how long a first start of the servers takes on an idle machine; every second moment lies behind the beginning
of the data directory, so that a slow machine does not make all of them early."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def stack() -> Iterator[Stack]:
    made = Stack(new_data_dir(), arguments=("--port", "0", "--only", "servers"))
    yield made
    made.remove()


def at_a_moment(stack: Stack, seed: int) -> None:
    """Launch, and wait until a moment that the seed names."""
    chance = random.Random(seed)
    stack.launch()
    if seed % 2:
        stack.wait(lambda: stack.data.lock_holder() is not None, 60, "it has begun")
    time.sleep(chance.uniform(0.3, USUAL_S))


def no_leftovers(stack: Stack) -> None:
    deadline = time.monotonic() + 5
    while found := processes_of(str(stack.data.root), stack.data.root):
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def our_traceback(said: str) -> str:
    """A traceback with a line of a file. The interpreter's own first moments, before any code of ours runs, are its."""
    return said if re.search(r'File "/', said) and "Traceback" in said else ""


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed(stack: Stack, seed: int) -> None:
    at_a_moment(stack, seed)
    assert stack.process
    stack.process.kill()
    stack.process.wait()
    no_leftovers(stack)
    stack.start()
    assert stack.end() == 0, stack.said()


@pytest.mark.parametrize("seed", range(100, 100 + ROUNDS))
def test_ctrl_c(stack: Stack, seed: int) -> None:
    at_a_moment(stack, seed)
    assert stack.process
    stack.process.send_signal(signal.SIGINT)
    assert stack.process.wait(60) in (0, 130, -signal.SIGINT), stack.said()
    assert not our_traceback(stack.said())
    no_leftovers(stack)
    stack.start()
    assert stack.end() == 0, stack.said()
