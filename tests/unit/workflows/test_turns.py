"""The turn loop on ports in memory: which transactions it makes, in which order."""

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.ids import Role
from agents.contracts.run import AgentRef, BurstEnd, BurstReason, Controls
from services.storage import Storage
from tests.support.memory import BRIEF, InMemoryBench, InMemoryLedger, NoRunner, NothingLost, SilentLive, StillClock
from tests.support.scripts import Line, ScriptedModel, says
from workflows.records import Answer, Begun, Held, Intent, Results, Waiting
from workflows.turns import BurstRules, Bursts, Ports

PLACE = BRIEF.place
PROMPTS = dict.fromkeys(Role, "You are one of a team.")
FINISH = says(("finish_step", {"summary": "done"}))
TALK = says(text="let me think", finish="stop")


class World:
    """One agent and its ports."""

    def __init__(self, lines: dict[str, Line] | list[Line]) -> None:
        self.ledger = InMemoryLedger(BRIEF)
        self.model = ScriptedModel(lines)
        self.bench = InMemoryBench()
        self.runner: Any = NoRunner()
        self.safe = NothingLost()
        self.clock = StillClock()
        self.rules = BurstRules(engine_patience_s=0.0, store_patience_s=0.0)
        self.drain: Future[None] = Future()

    async def burst(self) -> BurstEnd:
        """One attempt."""
        ports = Ports(self.ledger, self.model, self.runner, SilentLive(), self.bench, self.clock, self.safe)
        ref = AgentRef(tenant_id="t1", place=PLACE, round=1)
        return await Bursts(ports, PROMPTS, self.rules).run(ref, self.drain)


class MailDuringTheFirstTurn(InMemoryLedger):
    """A message comes in while the first reply is on its way."""

    async def answer(self, held: Held, key: str, answer: Answer) -> Controls:
        """T2, and then the message."""
        controls = await super().answer(held, key, answer)
        self.unread = 1 if answer.turn == 1 else 0
        return controls


class SlowLedger(InMemoryLedger):
    """Every T1 takes `seconds`."""

    def __init__(self, clock: StillClock, seconds: float) -> None:
        super().__init__(BRIEF)
        self._clock, self._seconds = clock, seconds

    async def begin(self, held: Held, key: str, done: Results, intent: Intent) -> Begun:
        """T1, slowly."""
        self._clock.at += self._seconds
        return await super().begin(held, key, done, intent)


def read(path: str) -> tuple[str, dict[str, object]]:
    return ("read_file", {"path": path})


async def test_a_turn_of_one_call_takes_two_transactions() -> None:
    world = World([says(read("a")), says(read("b")), FINISH])
    assert (await world.burst()).reason is BurstReason.FINISHED
    assert world.ledger.log == [
        *["load", "T1 1/m1", "T2 1/m1"],
        *["T1 2/m1 +result", "T2 2/m1"],
        *["T1 3/m1 +result", "T2 3/m1"],
        "end finished",
    ]


async def test_results_of_a_batch_are_kept_one_by_one() -> None:
    world = World([says(read("a"), read("b"), ("write_file", {"path": "c", "content": "x"})), FINISH])
    await world.burst()
    assert world.ledger.log[:7] == ["load", "T1 1/m1", "T2 1/m1", "keep", "keep", "keep", "T1 2/m1"]


async def test_the_runner_hears_of_the_fence_first() -> None:
    world = World([FINISH])
    await world.burst()
    [owner] = world.runner.announced
    assert (owner.agent_id, owner.agent_fence) == (PLACE.agent_id, 1)


async def test_a_bad_reply_is_kept_and_asked_again_as_the_next_k() -> None:
    world = World({"1/1/m1": TALK, "1/1/m2": FINISH})
    await world.burst()
    assert world.ledger.log[1:] == ["T1 1/m1", "T2 1/m1 bad", "T1 1/m2", "T2 1/m2", "end finished"]
    assert world.ledger.intents[1].opens is False


async def test_a_control_call_does_not_end_a_round_with_unread_mail() -> None:
    world = World([FINISH, FINISH])
    world.ledger = MailDuringTheFirstTurn(BRIEF)
    assert (await world.burst()).reason is BurstReason.FINISHED
    assert world.ledger.log[-3:] == ["T1 2/m1 +result", "T2 2/m1", "end finished"]


async def test_a_found_turn_goes_on_where_it_was() -> None:
    world = World([says(read("a"), read("b")), FINISH])
    world.rules = replace(world.rules, turns=1)
    await world.burst()
    turn = world.ledger.turns[-1]
    world.ledger.turns[-1] = turn.model_copy(update={"results": (turn.results[0], None)})
    world.bench.ran.clear()
    world.rules = replace(world.rules, turns=50)
    assert (await world.burst()).reason is BurstReason.FINISHED
    assert [key.split("/")[-1] for key in world.bench.ran] == [
        "c1",
        "c0",
    ]  # the one without a result, the hand-in
    assert len(world.model.asked) == 2


@pytest.mark.parametrize(
    ("rules", "moves", "turns"),
    [({"turns": 2}, 0.0, 2), ({"own_s": 10.0}, 4.0, 3)],
)
async def test_a_burst_ends_by_itself(rules: dict[str, Any], moves: float, turns: int) -> None:
    world = World([says(read(f"{n}")) for n in range(9)])
    world.rules = replace(world.rules, **rules)
    world.ledger = SlowLedger(world.clock, moves)
    assert (await world.burst()).reason is BurstReason.LIMIT
    assert len(world.ledger.turns) == turns
    assert world.ledger.log[-1] == "keep"  # the last result does not wait for the next burst


async def test_a_drain_ends_the_burst_at_the_next_turn() -> None:
    world = World([says(read("a")), FINISH])
    world.drain.set_result(None)
    assert (await world.burst()).reason is BurstReason.DRAIN


async def test_an_engine_that_is_away_leaves_the_intent_open() -> None:
    away = LonghaulError(ErrorCode.ENGINE_UNAVAILABLE, "down", retry_after_s=9)
    world = World({"1/1/m1": away})
    end = await world.burst()
    assert (end.reason, end.retry_after_s) == (BurstReason.ENGINE_UNAVAILABLE, 9)
    world.model.say("1/1/m1", FINISH)
    assert (await world.burst()).reason is BurstReason.FINISHED
    assert [request.key for request in world.model.asked] == [f"{PLACE.path}/1/1/m1"] * 2


async def test_without_space_no_turn_begins_and_the_agent_waits() -> None:
    world = World([FINISH])
    world.ledger.storage = Storage(Path("/"), 1 << 60)
    end = await world.burst()
    assert end.reason is BurstReason.STORAGE_FULL
    assert end.retry_after_s
    assert isinstance(world.ledger.waiting, Waiting)
    assert world.ledger.waiting.waiting_for == "storage"
    assert world.model.asked == []
    world.ledger.storage = Storage()
    assert (await world.burst()).reason is BurstReason.FINISHED


async def test_the_same_key_has_the_same_prompt() -> None:
    away = LonghaulError(ErrorCode.ENGINE_UNAVAILABLE, "down")
    world = World({"1/1/m1": says(read("a")), "1/2/m1": away})
    await world.burst()
    await world.burst()
    second, again = world.model.asked[1:]
    assert (second.key, second.messages, second.tools) == (again.key, again.messages, again.tools)


async def test_a_cancel_that_t2_sees_stops_before_the_tool_runs() -> None:
    world = World([says(read("a")), FINISH])
    world.ledger.cancelled = True
    assert (await world.burst()).reason is BurstReason.CANCELLED
    assert world.bench.ran == []
    assert world.ledger.log[-1] == "end cancelled"
