"""turn.cost: bursts against two bare Temporal activities a turn, on the same servers, by turns."""

import asyncio
import secrets
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from agents.contracts.run import AgentOutcome
from services.prompts import prompts
from services.worker.run import build
from tests.bench.turns.quick import RULES, quick, scenes
from tests.bench.turns.report import Cost, Size, figure, measured, middle, progress, target
from tests.support.turns import Parts
from workflows import options
from workflows.activities.doing import here
from workflows.activities.turns import TurnActivities
from workflows.turns import BurstRules, Bursts, Ports


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


@asynccontextmanager
async def working(client: Client, ports: Ports, rules: BurstRules = RULES) -> AsyncIterator[None]:
    """Workers in this process for both sides."""
    bursts = TurnActivities(Bursts(ports, prompts(), rules), here)
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
    try:
        yield
    finally:
        await asyncio.gather(*(worker.shutdown() for worker in workers))
        await asyncio.gather(*running)


async def ours(parts: Parts, client: Client, size: Size) -> Cost:
    """Bursts in AgentWorkflows."""
    agents = await scenes(parts, size.tasks)
    with measured(size.tasks * size.turns) as cost:
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


async def theirs(client: Client, size: Size) -> Cost:
    """Two bare activities a turn."""
    with measured(size.tasks * size.turns) as cost:
        names = [f"bare/{secrets.token_hex(6)}" for _ in range(size.tasks)]
        runs = (client.execute_workflow(Bare.run, size.turns, id=name, task_queue="bare") for name in names)
        await asyncio.gather(*runs)
    return cost


def compare(name: str, against: str, mine: list[Cost], other: list[Cost]) -> float:
    """Print the figure, of the pair of runs with the median ratio (its sides ran one right after the other, so both met
    about the same machine), and the CPU of the process that does the turns on each side; the ratio."""
    pairs = [(m.wall, o.wall) for m, o in zip(mine, other, strict=True)]
    ours, theirs = middle(pairs)
    ratio = figure(name, ours, "ms_per_turn", against, theirs)
    cpu = [statistics.median(cost.cpu for cost in side) for side in (mine, other)]
    print(f"  ratios of all pairs: {' '.join(f'{ratio:.2f}' for ratio in sorted(m / o for m, o in pairs))}")
    print(f"  CPU of the process with the loop: ours {cpu[0]:.2f}, theirs {cpu[1]:.2f} ms a turn (medians)")
    return ratio


async def bench(parts: Parts, client: Client, size: Size) -> None:
    """turn.cost."""
    mine: list[Cost] = []
    other: list[Cost] = []
    async with working(client, quick(parts, size.turns - 1, 100)):
        for n in range(size.rounds):
            progress(f"cost: pair {n + 1} of {size.rounds}")
            mine.append(await ours(parts, client, size))
            other.append(await theirs(client, size))
    ratio = compare("turn.cost", "two_bare_temporal_activities", mine, other)
    target("ratio <= 0.4", ratio <= 0.4)
    target("ratio <= 0.25", ratio <= 0.25)
