"""Trajectories kept between bursts: less is read, and nothing that a model sees is different."""

from concurrent.futures import Future
from typing import Any

from agents.contracts.ids import Role
from agents.contracts.run import AgentRef, BurstReason
from agents.contracts.trajectory import Turn, TurnInputs
from tests.support.memory import (
    BRIEF,
    NOW,
    InMemoryBench,
    InMemoryLedger,
    NoRunner,
    NothingLost,
    SilentLive,
    StillClock,
)
from tests.support.scripts import ScriptedModel, says
from workflows.trajectory import Kept, Trajectory
from workflows.turns import BurstRules, Bursts, Ports

PROMPTS = dict.fromkeys(Role, "You are one of a team.")
LINES = [says(("read_file", {"path": f"f{n}"})) for n in range(5)] + [says(("finish_step", {"summary": "done"}))]


class Agent:
    """An agent whose bursts take two turns each."""

    def __init__(self) -> None:
        self.ledger, self.model = InMemoryLedger(BRIEF), ScriptedModel(list(LINES))
        runner: Any = NoRunner()
        self.ports = Ports(self.ledger, self.model, runner, SilentLive(), InMemoryBench(), StillClock(), NothingLost())

    def worker(self) -> Bursts:
        """A worker that keeps nothing yet."""
        return Bursts(self.ports, PROMPTS, BurstRules(turns=2, engine_patience_s=0.0, store_patience_s=0.0))

    async def run(self, *workers: Bursts) -> list[str]:
        """Bursts on these workers in turn until the end; what was loaded."""
        ref, n = AgentRef(tenant_id="t1", place=BRIEF.place, round=1), 0
        while (await workers[n % len(workers)].run(ref, Future())).reason is BurstReason.LIMIT:
            n += 1
        return [line for line in self.ledger.log if line.startswith("load")]

    def prompts(self) -> list[Any]:
        """What the model was shown."""
        return [(request.coordinate, request.messages) for request in self.model.asked]


def turn(number: int) -> Turn:
    given = TurnInputs(at=NOW, turns_left=1)
    return Turn(round=1, turn=number, inputs=given, failed=None)


async def test_a_worker_reads_only_what_came_since_its_last_burst() -> None:
    alone, forgetful, two = Agent(), Agent(), Agent()
    assert await alone.run(alone.worker()) == ["load", "load after 1/2", "load after 1/4"]
    assert await forgetful.run(*(forgetful.worker() for _ in range(9))) == ["load"] * 3
    assert await two.run(two.worker(), two.worker()) == ["load", "load", "load after 1/2"]
    assert alone.prompts() == forgetful.prompts() == two.prompts()
    assert len(alone.prompts()) == 6


async def test_where_the_count_of_turns_does_not_agree_all_is_read() -> None:
    agent = Agent()
    worker, ref = agent.worker(), AgentRef(tenant_id="t1", place=BRIEF.place, round=1)
    await worker.run(ref, Future())
    agent.ledger.turns.pop(0)
    await worker.run(ref, Future())
    assert agent.ledger.log.count("load") == 2


def test_what_was_used_longest_ago_makes_room_and_nothing_is_taken_twice() -> None:
    places = [BRIEF.place.model_copy(update={"step": f"s{n}"}) for n in range(3)]
    kept = Kept(max_turns=4)
    for place in places:
        trajectory = Trajectory(PROMPTS, BRIEF)
        trajectory.turns += [turn(1), turn(2)]
        kept.put(place, trajectory)
    assert kept.take(places[0], BRIEF) is None
    assert kept.take(places[1], BRIEF) is not None
    assert kept.take(places[1], BRIEF) is None, "two attempts never share one"
    assert kept.take(places[2], BRIEF.model_copy(update={"goal": "another"})) is None


def test_a_trajectory_too_long_to_keep_is_not_kept() -> None:
    kept = Kept(max_chars=10)
    kept.put(BRIEF.place, Trajectory(PROMPTS, BRIEF))
    assert kept.take(BRIEF.place, BRIEF) is None
