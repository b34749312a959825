"""The kill matrix: every part of the stack, again and again, at moments of chance, while the demos and a scripted team
work. ``make fault`` runs it long, ``make fault ARGS=--seed=N`` repeats a run: the same victims after the same pauses.
"""

import random
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from tests.fault.case import Case, PlayCase, shoot
from tests.fault.conftest import SHORT, recordings_of
from tests.fault.ended import examine
from tests.fault.jobs import Job, demos
from tests.fault.play import Play
from tests.fault.tally import Tally
from tests.fault.test_chance import VICTIMS, marks, moves
from tests.support.stack import Stack

pytestmark = pytest.mark.timeout(2_400)

ON_TOP = 0.25
"""The share of kills that do not wait until the one before is over."""
WITHIN_S = 90.0


class Shot(NamedTuple):
    """A kill to come: of what, how long after everything went on again (or, `on_top`, after the kill before it)."""

    victim: str
    pause_s: float
    on_top: bool


def shots(seed: int, kills: int, victims: Sequence[str] = ()) -> list[Shot]:
    """Every victim as often as any other. Where `victims` are named, each waits until the one before is over: how
    long one kill is felt, not two."""
    chance = random.Random(seed)
    found: list[Shot] = []
    among = victims or VICTIMS
    while len(found) < kills:
        for victim in chance.sample(among, len(among)):
            on_top = not victims and bool(found) and chance.random() < ON_TOP
            found.append(Shot(victim, chance.uniform(0, 1.5 if on_top else 3.0), on_top))
    return found[:kills]


@dataclass
class Matrix:
    """One run: tasks are kept going while the shots last."""

    stack: Stack
    tally: Tally
    jobs: list[Job]

    def __post_init__(self) -> None:
        self.cases: list[Case] = []
        self._begun = time.monotonic()

    def run(self, plan: list[Shot]) -> None:
        """All shots, then the ends of all tasks."""
        for shot in plan:
            self._keep_going()
            if not shot.on_top:
                self._settle()
            time.sleep(shot.pause_s)
            self._kill(shot)
        for case in self.cases:
            case.watch.to_end(WITHIN_S)
            self._note(case)

    def _running(self) -> Iterator[Case]:
        return (case for case in self.cases if not case.ended)

    def _keep_going(self) -> None:
        """One task of each kind is under way."""
        for job in self.jobs:
            mine = [case for case in self.cases if case.job is job]
            if mine and not mine[-1].ended:
                continue
            if mine:
                self._note(mine[-1])
            make = PlayCase if isinstance(job, Play) else Case
            self.cases.append(make(self.stack, self.tally, job))  # type: ignore[arg-type]

    def _settle(self) -> None:
        """Every task has gone on since its last kill."""
        for case in self._running():
            if case.kills:
                case.watch.wait(lambda c=case: c.ended or c.watch.first_after(c.kills[-1].at), WITHIN_S, "it goes on")  # type: ignore[misc]

    def _kill(self, shot: Shot) -> None:
        self.stack.wait(lambda: self.stack.running(shot.victim), WITHIN_S, f"{shot.victim} is up")
        under_way = [case for case in self._running() if case.watch.seen]
        doing = ", ".join(f"{c.job.name} {c.id} {c.watch.seen[-1].event.data.type}" for c in under_way)
        kill = shoot(shot.victim, [self.stack.pid(shot.victim)])
        self.tally.injected += 1
        self.tally.moments.append(f"{kill.then - self._begun:7.2f} s  {shot.victim:<10} {doing}")
        for case in under_way:
            case.kills.append(kill)

    def _note(self, case: Case) -> None:
        if case.ended:
            case.note_the_end()


def test_every_part_killed_at_moments_of_chance(killed_stack: Stack, tally: Tally, pytestconfig: pytest.Config) -> None:
    kills = pytestconfig.getoption("--kills", default=SHORT)
    seed = pytestconfig.getoption("--seed", default=None)
    seed = seed if seed is not None else (1 if kills == SHORT else secrets.randbelow(1_000_000))
    victims = [name for name in pytestconfig.getoption("--victims", default="").split(",") if name]
    tally.moments.append(f"kill matrix: {kills} kills, seed {seed} (make fault ARGS=--seed={seed})")
    word = f"matrix-{secrets.token_hex(3)}"
    play = Play(word, tuple(moves(word)), tuple(marks(word)))
    play.record(recordings_of(killed_stack))
    matrix = Matrix(killed_stack, tally, [*demos(), play])
    try:
        matrix.run(shots(seed, kills, victims))
        wrong = [f"{case.job.name} {case.id}: {fault}" for case in matrix.cases for fault in _faults(case)]
    finally:
        for case in matrix.cases:
            case.close()
    assert wrong == [], "\n".join(wrong)


def _faults(case: Case) -> Iterator[str]:
    try:
        examine(case)
    except AssertionError as wrong:
        yield str(wrong)
