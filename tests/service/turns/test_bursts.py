"""Bursts of one worker on the real ledger: what is read at the start of each."""

import itertools
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from agents.contracts.run import BurstReason
from agents.contracts.trajectory import Turn
from services.prompts import prompts
from services.storage import Storage
from services.store.ledger import SqlLedger
from services.store.spill import Spill
from services.worker.clock import SystemClock
from tests.support.scripts import ScriptedModel, says
from tests.support.turns import Parts, new_scene
from workflows.turns import Bursts


class Watched:
    """A ledger whose loads are noted: after which turn, and what came."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger
        self.loads: list[tuple[Any, list[Turn]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def load(self, *args: Any) -> list[Turn]:
        """As the ledger."""
        found: list[Turn] = await self._ledger.load(*args)
        self.loads.append((args[-1], list(found)))
        return found


async def test_a_burst_reads_what_came_since_the_workers_last_one(parts: Parts, tenant_id: str) -> None:
    lines = [says(("write_file", {"path": f"f{n}", "content": "x"})) for n in range(5)]
    model = ScriptedModel([*lines, says(("finish_step", {"summary": "done"}))])
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    ledger = Watched(parts.ledger)
    rules = replace(scene.rules, turns=2)
    one, other = (Bursts(replace(scene.ports, ledger=ledger), prompts(), rules) for _ in range(2))
    for worker in (one, other, one):
        last = await worker.run(scene.ref, scene.drain)
    assert last.reason is BurstReason.FINISHED
    assert [(after, [turn.turn for turn in found]) for after, found in ledger.loads] == [
        (None, []),
        (None, [1, 2]),
        ((1, 2), [3, 4]),
    ]
    assert all(turn.complete for _, found in ledger.loads for turn in found)
    shown = [request.messages[:-1] for request in model.asked]  # without the scratch, every prompt begins as the last
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(shown))


class SetAgain(SystemClock):
    """A wall clock that is set an hour forward or back every time somebody looks."""

    def __init__(self) -> None:
        self._looks = 0

    def now(self) -> datetime:
        """Nobody knows."""
        self._looks += 1
        return super().now() + timedelta(hours=1 if self._looks % 2 else -1)


async def test_a_clock_that_is_set_changes_nothing_but_times(parts: Parts, tenant_id: str) -> None:
    lines = [says(("shell", {"command": f"echo {n} >> log", "timeout_s": 30})) for n in range(4)]
    model = ScriptedModel([*lines, says(("finish_step", {"summary": "done"}))])
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    clock = SetAgain()
    ledger = SqlLedger(parts.db, Spill(parts.objects), clock, Storage())
    end = await scene.burst(ledger=ledger, clock=clock)
    assert (end.reason, end.turns) == (BurstReason.FINISHED, 5), "no burst of an hour ends early or late"
    assert await scene.shell("cat log") == "0\n1\n2\n3\n"
    told = await scene.events()  # asserts their numbers
    assert any(later.at < earlier.at for earlier, later in itertools.pairwise(told))
