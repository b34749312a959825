"""turn.growth_2000_over_20 and turn.history_500_mb: one agent of 2,000 turns on the whole stack.

Its model is the replay engine's generator over HTTP, its commands run in a sandbox, its bursts are as long as a
worker's. The model call itself is kept apart: its body holds the whole history, so it grows with it. What is left of a
turn is compared between the first turns and the last ones, each with its share of what a burst costs at its start.
"""

import secrets
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from sqlalchemy import text
from temporalio.client import Client, WorkflowHandle

from agents.contracts.run import AgentOutcome, BurstReason
from agents.contracts.task import Limits
from services.inference import OpenAiModel
from services.relay.outbox import event_body
from tests.bench.turns.against_temporal import working
from tests.bench.turns.report import Size, figure, target
from tests.support.turns import Parts, Scene, new_scene
from workflows import options
from workflows.turns import BurstRules

HISTORY_TURNS = 500
TABLES = ("turns", "model_calls", "tool_calls", "events")


@dataclass
class Mark:
    """The beginning of a turn: seconds of wall and of our CPU so far, without model calls and without looking."""

    turn: int
    wall: float
    cpu: float
    burst: bool = False
    """Whether it is the first of its burst."""


@dataclass
class Look:
    """What was stored when a turn began, in bytes: WAL of the database and the history of the workflow."""

    turn: int
    wal: int
    history: int


class Watch:
    """The ledger and the model, watched."""

    def __init__(self, parts: Parts, model: OpenAiModel, workflow: WorkflowHandle[Any, Any], every: int) -> None:
        self._parts, self._ledger, self._model = parts, parts.ledger, model
        self._workflow, self._every = workflow, every
        self._away = [0.0, 0.0]
        self._opened = True
        self.marks: list[Mark] = []
        self.looks: list[Look] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def estimate_cost_micro(self, prompt_tokens: int, completion_tokens: int) -> int:
        """The model's."""
        return self._model.estimate_cost_micro(prompt_tokens, completion_tokens)

    async def open(self, *args: Any) -> Any:
        """A burst begins: its first turn is marked here, so that what it reads is that turn's."""
        self._opened = True
        self._mark(0)
        return await self._ledger.open(*args)

    async def begin(self, held: Any, key: Any, done: Any, intent: Any) -> Any:
        """T1."""
        if self._opened:
            self.marks[-1].turn, self.marks[-1].burst, self._opened = intent.turn, True, False
        elif intent.opens:
            self._mark(intent.turn)
        if intent.opens and intent.turn % self._every == 1:
            before = self._now()
            await self._look(intent.turn)
            self._leave_out(before)
        return await self._ledger.begin(held, key, done, intent)

    async def call(self, request: Any, on_text: Any) -> Any:
        """A model call."""
        before = self._now()
        try:
            return await self._model.call(request, on_text)
        finally:
            self._leave_out(before)

    async def _look(self, turn: int) -> None:
        async with self._parts.db.begin() as conn:
            wal = (await conn.execute(text("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))).scalar_one()
        told = await self._workflow.describe()
        history = told.raw_description.workflow_execution_info.history_size_bytes
        self.looks.append(Look(turn, int(wal), int(history)))

    def _mark(self, turn: int) -> None:
        wall, cpu = self._now()
        self.marks.append(Mark(turn, wall - self._away[0], cpu - self._away[1]))

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def _leave_out(self, before: tuple[float, float]) -> None:
        for n, now in enumerate(self._now()):
            self._away[n] += now - before[n]


def cost(marks: Sequence[Mark], first: int, last: int, what: str) -> float:
    """ms a turn from turn `first` up to and with `last`: the median of the turns within bursts, and the mean of what
    the first turns of bursts cost more than that, shared by all."""
    spans: list[tuple[bool, float]] = [
        (a.burst, (getattr(b, what) - getattr(a, what)) * 1000) for a, b in pairwise(marks) if first <= a.turn <= last
    ]
    within: float = statistics.median(ms for burst, ms in spans if not burst)
    starts = [ms - within for burst, ms in spans if burst]
    return within + sum(starts) / len(spans)


async def bench(parts: Parts, client: Client, size: Size) -> None:
    """Both figures, and where the bytes go."""
    tenant = "t" + secrets.token_hex(6)
    async with OpenAiModel(parts.settings) as model:
        limits, recording = Limits(turns=size.long * 2), f"generate:{size.long}"
        scene = await new_scene(parts, tenant, model, sandbox=True, limits=limits, recording=recording)
        name = f"agent/{scene.ref.place.path}/1"
        watch = Watch(parts, model, client.get_workflow_handle(name), size.burst)
        rules = BurstRules(max_tokens=1_000, turns=size.burst, own_s=600.0)
        async with working(client, replace(parts.ports(watch), ledger=watch), rules):
            outcome = await client.execute_workflow(
                "AgentWorkflow", scene.ref, id=name, task_queue=options.WORKFLOW_QUEUE, result_type=AgentOutcome
            )
    assert outcome.reason is BurstReason.FINISHED, outcome
    assert scene.sandbox_id is not None
    await parts.runner.destroy(scene.sandbox_id)
    _tell_growth(watch, size)
    _tell_history(watch)
    await _tell_bytes(parts, scene, watch, size)


def _windows(size: Size) -> tuple[tuple[int, int], tuple[int, int]]:
    """The first turns and the last ones, each a burst long."""
    return (1, size.burst), (size.long - size.burst + 1, size.long)


def _tell_growth(watch: Watch, size: Size) -> None:
    early, late = _windows(size)
    walls, cpus = ([cost(watch.marks, *window, what) for window in (late, early)] for what in ("wall", "cpu"))
    against = f"turns_{early[0]}_to_{early[1]}_of_the_same_agent"
    ratio = figure("turn.growth_2000_over_20", walls[0], "ms_per_turn", against, walls[1])
    target("ratio <= 1.1", ratio <= 1.1)
    bursts = sum(mark.burst for mark in watch.marks)
    print(f"  turns {late[0]} to {late[1]}, without the model call; {bursts} bursts")
    print(f"  CPU of the worker: {cpus[0]:.2f} against {cpus[1]:.2f} ms a turn, ratio {cpus[0] / cpus[1]:.3f}")


def _tell_history(watch: Watch) -> None:
    looks = [look for look in watch.looks if look.turn <= HISTORY_TURNS + 1]
    megabytes = looks[-1].history / 1e6
    figure("turn.history_500_mb", megabytes, "MB")
    target(f"<= 0.5 (history of {looks[-1].turn - 1} turns)", megabytes <= 0.5)


async def _tell_bytes(parts: Parts, scene: Scene, watch: Watch, size: Size) -> None:
    """What is written per turn near its start and near its end, apart from the request (which is not stored)."""
    early, late = _windows(size)
    early = (min(20, size.burst // 2), early[1] + size.burst)
    rows = [await _row_bytes(parts, scene, *window) for window in (early, late)]
    wal, history = (_per_turn(watch.looks, what, size) for what in ("wal", "history"))
    print(f"  bytes written a turn, turns {early[0]} to {early[1]} and {late[0]} to {late[1]}:")
    for name, (first, last) in {
        "rows": (rows[0][0], rows[1][0]),
        "NATS (events)": (rows[0][1], rows[1][1]),
        "WAL": wal,
        "Temporal history": history,
    }.items():
        print(f"    {name:<40} {first:9.1f} {last:9.1f}")


async def _row_bytes(parts: Parts, scene: Scene, first: int, last: int) -> tuple[float, float]:
    """Of the rows of these turns, and of their events as they are published; a turn."""
    mine = {"agent": scene.ref.place.agent_id, "first": first, "last": last}
    where = "agent_id = :agent AND turn BETWEEN :first AND :last"
    stored = 0
    async with parts.db.begin() as conn:
        for table in TABLES:
            query = text(f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {table} AS t WHERE {where}")
            stored += (await conn.execute(query, mine)).scalar_one()
        told = (await conn.execute(text(f"SELECT * FROM events WHERE {where}"), mine)).mappings().all()
    count = last - first + 1
    return stored / count, sum(len(event_body(dict(row))) for row in told) / count


def _per_turn(looks: Sequence[Look], what: str, size: Size) -> tuple[float, float]:
    """Bytes a turn: medians over the bursts of the first quarter and of the last."""
    steps = [(getattr(b, what) - getattr(a, what)) / size.burst for a, b in pairwise(looks)]
    quarter = max(1, len(steps) // 4)
    return statistics.median(steps[:quarter]), statistics.median(steps[-quarter:])
