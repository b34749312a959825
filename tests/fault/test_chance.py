"""Kills by chance: any process at any moment. ``FAULT_ROUNDS=100 make fault`` for a long run; a seed makes a round
again."""

import os
import random
import time

import pytest

from tests.fault.conftest import Begin
from tests.fault.ended import examine
from tests.fault.play import Move, long, short, slow

pytestmark = pytest.mark.timeout(240)

ROUNDS = range(int(os.environ.get("FAULT_ROUNDS", "1")))
VICTIMS = ("worker-1", "worker-2", "runner", "replay", "api", "relay", "temporal", "nats", "seaweedfs", "postgres")
SHORT = 6
"""Commands of a moment on either side of a slow reply and a long command."""
LASTS_S = 14.0
"""About how long such a task takes."""


def moves(word: str) -> list[Move]:
    before = [short(f"{word}-{n}") for n in range(SHORT)]
    after = [short(f"{word}-{n}") for n in range(SHORT, 2 * SHORT)]
    return [*before, slow(f"{word}-slow"), long(f"{word}-long"), *after]


def marks(word: str) -> list[str]:
    numbered = [f"{word}-{n}" for n in range(2 * SHORT)]
    return [*numbered[:SHORT], *(f"{word}-{part}" for part in ("slow", "long-begin", "long-end")), *numbered[SHORT:]]


@pytest.mark.parametrize("seed", ROUNDS)
def test_anything_killed_at_any_moment(begin: Begin, seed: int) -> None:
    chance = random.Random(seed)
    moments = sorted(chance.uniform(0, LASTS_S) for _ in range(3))
    case = begin(f"chance-{seed}", moves, marks)
    begun = time.monotonic()
    for moment in moments:
        time.sleep(max(0.0, begun + moment - time.monotonic()))
        victims = [name for name in chance.sample(VICTIMS, 2) if case.runs(name)]
        if not case.ended and victims:
            case.kill(*victims)
    examine(case)
