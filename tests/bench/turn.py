"""What a turn costs: ours against two bare Temporal activities a turn, side by side on the same servers.

python -m tests.bench turn [--data-dir DIR]     DIR: a running stack's; else one is started and removed
"""

import argparse
import asyncio
import secrets
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from agents.contracts.model import ModelReply, ModelRequest
from agents.contracts.run import AgentOutcome
from agents.contracts.sandbox import ExecRequest, ExecState, ExecStatus
from services.prompts import prompts
from services.settings import Settings
from services.stack.layout import DataDir
from services.worker.run import build
from services.worker.tools import SandboxBench
from tests.support.scripts import says
from tests.support.stack import Stack, new_data_dir
from tests.support.team import connect
from tests.support.turns import Parts, Scene, new_scene
from workflows import options
from workflows.activities.doing import here
from workflows.activities.turns import TurnActivities
from workflows.turns import BurstRules, Bursts, Ports

TASKS, TURNS, ROUNDS = 10, 40, 3
"""Tasks at once, turns of each, and how often both sides are measured in turn."""
TARGETS = {"turn.cost": "ratio <= 0.4, then <= 0.25", "turn.latency_ms": "<= 15 ms with S3 writes on the path"}
RULES = BurstRules(max_tokens=1_000, turns=1_000, own_s=600.0)


class QuickModel:
    """An engine that answers at once: a command for `turns` turns, then the end."""

    def __init__(self, turns: int) -> None:
        self._turns = turns

    def estimate_cost_micro(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Free."""
        return 0

    async def call(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """The next command, never the same twice."""
        turn = int(request.key.split("/")[-2])
        if turn > self._turns:
            return says(("finish_step", {"summary": "done"}))
        return says(("shell", {"command": f"true {turn}"}))


class QuickRunner:
    """A runner whose commands end at once, with `size` bytes of output."""

    def __init__(self, runner: Any, size: int) -> None:
        self._runner = runner
        self._size = size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    async def exec(self, sandbox_id: str, request: ExecRequest) -> ExecStatus:
        """No command is run."""
        return ExecStatus(
            exec_id=request.exec_id,
            state=ExecState.EXITED,
            started=True,
            exit_code=0,
            reason="exited",
            output=(request.exec_id + " ") * (self._size // 38),
            started_at=datetime.now(UTC),
        )


class Timed:
    """A port whose calls are timed."""

    def __init__(self, port: Any, spent: dict[str, float], names: dict[str, str]) -> None:
        self._port, self._spent, self._names = port, spent, names

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if name not in self._names:
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return await method(*args, **kwargs)
            finally:
                self._spent[self._names[name]] += time.perf_counter() - begun

        return call


@activity.defn
async def nothing(_: int) -> int:
    """A bare activity."""
    return 0


@workflow.defn
class Bare:
    """Turns as two bare activities each."""

    @workflow.run
    async def run(self, turns: int) -> None:
        """Nothing but orchestration."""
        for turn in range(turns * 2):
            await workflow.execute_activity(
                nothing, turn, start_to_close_timeout=timedelta(seconds=60), task_queue="bare"
            )


@dataclass
class Cost:
    """Of one run: wall and our own CPU, in ms a turn."""

    wall: float
    cpu: float


@contextmanager
def measured(turns: int) -> Iterator[Cost]:
    """Fills a `Cost`."""
    cost = Cost(0.0, 0.0)
    wall, cpu = time.perf_counter(), time.process_time()
    yield cost
    cost.wall = (time.perf_counter() - wall) * 1000 / turns
    cost.cpu = (time.process_time() - cpu) * 1000 / turns


def quick(parts: Parts, turns: int, size: int) -> Ports:
    """Ports whose engine and runner cost nothing; the ledger, S3 and NATS are real."""
    runner = QuickRunner(parts.runner, size)
    bench = SandboxBench(runner, parts.objects, parts.clock, parts.post)
    return replace(parts.ports(QuickModel(turns)), runner=runner, bench=bench)


async def scenes(parts: Parts, count: int) -> list[Scene]:
    """Agents of as many tasks; the sandbox is never used."""
    tenant = "t" + secrets.token_hex(6)
    first = await new_scene(parts, tenant, QuickModel(0), sandbox=True)
    return [await new_scene(parts, tenant, QuickModel(0), in_sandbox=first.sandbox_id) for _ in range(count)]


async def ours(parts: Parts, client: Client) -> Cost:
    """Bursts in AgentWorkflows."""
    agents = await scenes(parts, TASKS)
    with measured(TASKS * TURNS) as cost:
        runs = [
            client.execute_workflow(
                "AgentWorkflow",
                scene.ref,
                id=f"agent/{scene.ref.place.path}/1",
                task_queue=options.WORKFLOW_QUEUE,
                result_type=AgentOutcome,
            )
            for scene in agents
        ]
        outcomes = await asyncio.gather(*runs)
    assert all(outcome.reason == "finished" for outcome in outcomes), outcomes
    return cost


async def theirs(client: Client) -> Cost:
    """Two bare activities a turn."""
    with measured(TASKS * TURNS) as cost:
        names = [f"bare/{secrets.token_hex(6)}" for _ in range(TASKS)]
        await asyncio.gather(*(client.execute_workflow(Bare.run, TURNS, id=n, task_queue="bare") for n in names))
    return cost


async def bench_cost(parts: Parts, client: Client) -> None:
    """turn.cost."""
    bursts = TurnActivities(Bursts(quick(parts, TURNS - 1, 100), prompts(), RULES), here)
    bare = Worker(
        client,
        task_queue="bare",
        workflows=[Bare],
        activities=[nothing],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=200,
    )
    workers = [*build(client, [bursts.run_turns], [nothing]), bare]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    mine: list[Cost] = []
    other: list[Cost] = []
    for _ in range(ROUNDS):
        mine.append(await ours(parts, client))
        other.append(await theirs(client))
        print(f"  ours {mine[-1].wall:6.2f} ms/turn   two activities {other[-1].wall:6.2f} ms/turn", flush=True)
    await asyncio.gather(*(worker.shutdown() for worker in workers))
    await asyncio.gather(*running)
    a, b = statistics.median(c.wall for c in mine), statistics.median(c.wall for c in other)
    print(
        f"BENCH turn.cost ours={a:.2f} unit=ms_per_turn against=two_bare_temporal_activities"
        f" theirs={b:.2f} ratio={a / b:.3f}"
    )
    cpu = [statistics.median(c.cpu for c in side) for side in (mine, other)]
    print(
        f"  target {TARGETS['turn.cost']}; CPU of the worker process: ours {cpu[0]:.2f}, theirs {cpu[1]:.2f} ms a turn"
    )


async def bench_latency(parts: Parts) -> None:
    """turn.latency_ms: one task, 20 KiB of output a turn, which goes to S3."""
    [scene] = await scenes(parts, 1)
    spent: dict[str, float] = defaultdict(float)
    ports = quick(parts, TURNS, 20 * 1024)
    objects = Timed(parts.objects, spent, {"put": "S3"})
    runner = QuickRunner(Timed(parts.runner, spent, {}), 20 * 1024)
    ports = replace(
        ports,
        ledger=Timed(ports.ledger, spent, {"begin": "T1", "answer": "T2"}),
        model=Timed(ports.model, spent, {"call": "model"}),
        bench=SandboxBench(runner, objects, parts.clock, parts.post),
    )
    scene.ports, scene.rules = ports, RULES
    begun = time.perf_counter()
    await scene.burst()
    total = (time.perf_counter() - begun) * 1000 / (TURNS + 1)
    parts_ms = {name: spent[name] * 1000 / (TURNS + 1) for name in ("T1", "T2", "S3", "model")}
    rest = total - sum(parts_ms.values())
    print(f"BENCH turn.latency_ms ours={total:.2f} unit=ms against=none theirs=0 ratio=0")
    print(f"  target {TARGETS['turn.latency_ms']}; where each ms goes:")
    for name, ms in {**parts_ms, "render, tool, loop": rest}.items():
        print(f"    {name:<20} {ms:6.2f} ms")


async def run(settings: Settings) -> None:
    """Both figures."""
    async with Parts(settings) as parts:
        client = await connect(settings, "bench-" + secrets.token_hex(4))
        await bench_latency(parts)
        await bench_cost(parts, client)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="turn", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="a running stack's directory")
    chosen = parser.parse_args().data_dir
    stack = Stack(chosen or new_data_dir())
    if chosen:
        stack.data = DataDir(chosen)
    else:
        stack.start()
    try:
        asyncio.run(run(stack.settings("worker")))
    finally:
        if not chosen:
            stack.end()
            stack.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
