"""turn.growth_2000_over_20 and turn.history_500_mb: one agent of 2,000 turns on the whole stack.

Its model is the replay engine's generator over HTTP, its bursts are as long as a worker's; one command of each burst
says so much that it goes to S3. The commands of the bursts that are compared run in a sandbox; the others end at once,
else this would take a quarter of an hour on a busy machine. Only the model call does not count: the body of a request
holds the whole history, so it grows with it, whoever sends it.

A machine is busier at one time than at another, so the late turns are not compared with the early ones of minutes
before: before each of its last bursts a new agent has its first one.
"""

import secrets
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from temporalio.client import Client

from agents.contracts.run import AgentOutcome, AgentRef, BurstReason
from agents.contracts.task import Limits
from services.inference import OpenAiModel
from services.storage import Storage
from services.store.ledger import SqlLedger
from services.store.spill import Spill
from services.store.task_runs import SqlTasks
from services.worker.tools import SandboxBench
from tests.bench.turns import stored, watch
from tests.bench.turns.against_temporal import working
from tests.bench.turns.report import Size, figure, middle, progress, target
from tests.bench.turns.watch import Mark
from tests.support.turns import Parts, Scene, new_scene
from workflows import options
from workflows.turns import BurstRules, Ports

HISTORY_TURNS = 500
LIMIT = 1.1
PARTS = {
    "own": "all but command and model call",
    "T1": "  of it T1",
    "T2": "  of it T2",
    "cpu": "  CPU of the worker in it",
    "command": "the command, in the sandbox",
    "model": "the model call: not counted",
}


class Growth:
    """The long agent with the new ones beside it."""

    def __init__(self, parts: Parts, client: Client, model: OpenAiModel, size: Size) -> None:
        self._parts, self._client, self._size = parts, client, size
        self.logs: dict[str, watch.Log] = defaultdict(watch.Log)
        self.new: list[str] = []
        """The new agents."""
        self.looks: list[stored.Look] = []
        self._long: Scene | None = None
        self._model = model
        self._tenant = "t" + secrets.token_hex(6)
        self._objects = watch.Objects(parts.objects, self.logs)

    def ports(self) -> Ports:
        """What bursts of all of them run on."""
        parts, logs = self._parts, self.logs
        ledger = SqlLedger(parts.db, Spill(self._objects), parts.clock, Storage())
        half = self._size.burst // 2
        runner = watch.Runner(parts.runner, logs, self._compared, lambda turn: turn % self._size.burst == half)
        return replace(
            parts.ports(watch.Model(self._model, logs)),
            ledger=watch.Ledger(ledger, logs, self._between),
            runner=runner,
            bench=SandboxBench(runner, self._objects, parts.clock, parts.post),
        )

    async def run(self) -> Scene:
        """The long agent, to its end."""
        self._long = await self._scene(self._size.long)
        await self._finish(self._long)
        return self._long

    async def _scene(self, turns: int) -> Scene:
        parts, limits, recording = self._parts, Limits(turns=turns * 2), f"generate:{turns}"
        scene = await new_scene(parts, self._tenant, self._model, sandbox=True, limits=limits, recording=recording)
        assert scene.sandbox_id is not None
        # noted as the harness does: else the relay takes it for a forgotten one and destroys it
        await SqlTasks(parts.db, parts.clock).expect(scene.task, scene.sandbox_id, "workspace")
        return scene

    def _compared(self, agent: str, turn: int) -> bool:
        long = self._long
        return long is None or agent != long.ref.place.agent_id or turn > self._first

    @property
    def _first(self) -> int:
        """After this turn the long agent's bursts are compared."""
        return self._size.long - self._size.pairs * self._size.burst

    async def _finish(self, scene: Scene) -> None:
        outcome = await self._client.execute_workflow(
            "AgentWorkflow",
            scene.ref,
            id=workflow_id(scene),
            task_queue=options.WORKFLOW_QUEUE,
            result_type=AgentOutcome,
        )
        assert outcome.reason is BurstReason.FINISHED, outcome
        assert scene.sandbox_id is not None
        await self._parts.runner.destroy(scene.sandbox_id)

    async def _between(self, ref: AgentRef) -> None:
        """Before each burst of the long agent: look at what is stored; before its last ones a new agent's first."""
        long, size = self._long, self._size
        if long is None or ref.place.agent_id != long.ref.place.agent_id:
            return
        turn = self._next(ref)
        workflow = self._client.get_workflow_handle(workflow_id(long))
        self.looks.append(await stored.look(self._parts, workflow, turn, self._objects.written))
        progress(f"growth: {turn - 1} of {size.long} turns")
        if self._first < turn <= size.long:
            new = await self._scene(size.burst)
            self.new.append(new.ref.place.agent_id)
            await self._finish(new)

    def _next(self, ref: AgentRef) -> int:
        """The long agent's next turn: bursts are equally long."""
        bursts = sum(mark.burst for mark in self.logs[ref.place.agent_id].marks)
        return bursts * self._size.burst + 1

    def pairs(self, long: Scene, part: str) -> list[tuple[float, float]]:
        """ms a turn of each of the last bursts, and of the new agent's first one just before."""
        size, late = self._size, self.logs[long.ref.place.agent_id].marks
        begins = range(self._first + 1, size.long + 1, size.burst)
        return [
            (cost(late, begin, begin + size.burst - 1, part), cost(self.logs[new].marks, 1, size.burst, part))
            for begin, new in zip(begins, self.new, strict=True)
        ]


def workflow_id(scene: Scene) -> str:
    """The id of an agent's workflow."""
    return f"agent/{scene.ref.place.path}/1"


def cost(marks: Sequence[Mark], first: int, last: int, part: str) -> float:
    """ms a turn from turn `first` up to and with `last`: the median of the turns within bursts, and the mean of what
    the first turns of bursts cost more than that, shared by all."""

    def at(mark: Mark) -> float:
        return mark.seconds["own"] + mark.seconds.get("command", 0.0) if part == "all" else mark.seconds.get(part, 0.0)

    spans = [(a.burst, (at(b) - at(a)) * 1000) for a, b in pairwise(marks) if first <= a.turn <= last]
    within = statistics.median(ms for burst, ms in spans if not burst)
    starts = [ms - within for burst, ms in spans if burst]
    return within + sum(starts) / len(spans)


async def bench(parts: Parts, client: Client, size: Size) -> None:
    """Both figures, and where the time and the bytes go."""
    async with OpenAiModel(parts.settings) as model:
        growth = Growth(parts, client, model, size)
        rules = BurstRules(max_tokens=1_000, turns=size.burst, own_s=600.0)
        async with working(client, growth.ports(), rules):
            long = await growth.run()
    _tell_growth(growth, long, size)
    _tell_history(growth.looks)
    await stored.tell(parts, long, growth.looks, growth.logs[long.ref.place.agent_id].requests, size)


def _tell_growth(growth: Growth, long: Scene, size: Size) -> None:
    against = f"turns_1_to_{size.burst}_of_a_new_agent"
    late, early = middle(growth.pairs(long, "all"))
    ratio = figure("turn.growth_2000_over_20", late, "ms_per_turn", against, early)
    target(f"ratio <= {LIMIT}", ratio <= LIMIT)
    print(f"  turns {size.long - size.pairs * size.burst + 1} to {size.long}, burst by burst, each after a new agent's")
    print("  first; the pair of bursts with the median ratio; a turn is the median of its burst; ms a turn:")
    for part, name in PARTS.items():
        pair = middle(growth.pairs(long, part))
        print(f"    {name:<32} {pair[0]:8.2f} against {pair[1]:8.2f}, ratio {pair[0] / pair[1]:.3f}")
    own = middle(growth.pairs(long, "own"))
    target(f"ratio <= {LIMIT} without the command too", own[0] <= LIMIT * own[1])


def _tell_history(looks: Sequence[stored.Look]) -> None:
    until = [look for look in looks if look.turn <= HISTORY_TURNS + 1]
    megabytes = until[-1].history / 1e6
    figure("turn.history_500_mb", megabytes, "MB")
    target(f"<= 0.5 (history of {until[-1].turn - 1} turns)", megabytes <= 0.5)
