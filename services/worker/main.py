"""The worker process: builds every adapter and runs workflows and activities until SIGTERM, then drains."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from agents.tools.registry import STANDARD, Toolbox
from services import identity, lifecycle, telemetry
from services.inference.client import OpenAiModel
from services.mailbox.link import connect
from services.mailbox.live import NatsLive
from services.objects.s3 import S3Objects
from services.prompts import prompts
from services.sandbox.client import RunnerClient
from services.settings import Settings
from services.storage import Storage, storage_of
from services.store.database import Database
from services.store.ledger import SqlLedger
from services.store.lost_sandboxes import SqlSandboxes
from services.store.post import SqlPost
from services.store.rounds import SqlRounds
from services.store.spill import Spill
from services.store.steps import SqlSteps
from services.store.task_runs import SqlTasks
from services.temporal import runtime as temporal_runtime
from services.worker.clock import SystemClock
from services.worker.loop import WorkLoop
from services.worker.run import Activity, build, run_until
from services.worker.tools import SandboxBench
from workflows.activities.doing import Elsewhere
from workflows.activities.review import ReviewActivities, Stores
from workflows.activities.task import RoundActivities, TaskActivities
from workflows.activities.turns import TurnActivities
from workflows.keeping import Cadence
from workflows.ports import Live, Model, Objects, Runner
from workflows.turns import BurstRules, Bursts, Ports
from workflows.workspaces import Workspaces


@dataclass(frozen=True)
class Activities:
    """The activities by queue."""

    bursts: list[Activity]
    tasks: list[Activity]


@dataclass(frozen=True)
class World:
    """The adapters."""

    db: Database
    objects: Objects
    live: Live
    runner: Runner
    model: Model
    storage: Storage


def wire(world: World, rules: BurstRules, elsewhere: Elsewhere, toolbox: Toolbox = STANDARD) -> Activities:
    """The activities on these adapters."""
    db, objects, runner = world.db, world.objects, world.runner
    clock = SystemClock()
    ledger = SqlLedger(db, Spill(objects), clock, world.storage)
    bench = SandboxBench(runner, objects, clock, SqlPost(db))
    tasks, rounds, steps = SqlTasks(db, clock), SqlRounds(db, objects, clock), SqlSteps(db, clock)
    workspaces = Workspaces(SqlSandboxes(db, clock), tasks, runner, objects, clock)
    ports = Ports(ledger, world.model, runner, world.live, bench, clock, workspaces)
    of_task = TaskActivities(tasks, workspaces, runner, world.live, elsewhere)
    of_round = RoundActivities(rounds, steps, workspaces, runner, elsewhere)
    of_review = ReviewActivities(Stores(tasks, rounds, steps), workspaces, runner, elsewhere)
    return Activities(
        bursts=[TurnActivities(Bursts(ports, prompts(), rules, toolbox), elsewhere).run_turns],
        tasks=[
            of_task.begin_task,
            of_task.read_controls,
            of_task.prepare_workspace,
            of_task.finish_task,
            of_round.open_round,
            of_round.record_plan,
            of_round.start_step,
            of_round.fail_step,
            of_review.prepare_review,
            of_review.apply_review,
        ],
    )


@asynccontextmanager
async def adapters(settings: Settings) -> AsyncIterator[World]:
    """Everything that reaches the world; closed at the end."""
    async with AsyncExitStack() as ends:
        db = Database(settings.pg_url, pool_size=20, max_overflow=0, plan_once=True)
        ends.push_async_callback(db.close)
        objects = S3Objects(settings)
        ends.push_async_callback(objects.close)
        link = await connect(settings, "worker")
        ends.push_async_callback(link.close)
        model = await ends.enter_async_context(OpenAiModel(settings))
        runner = RunnerClient(settings.runner_url, settings.runner_token.get_secret_value())
        ends.push_async_callback(runner.close)
        yield World(db, objects, NatsLive(link), runner, model, storage_of(settings))


async def temporal(settings: Settings, stop: asyncio.Event) -> Client | None:
    """A connection to Temporal, however long it takes; None where the process is stopped first."""
    runtime = temporal_runtime()
    while not stop.is_set():
        try:
            return await Client.connect(
                settings.temporal_address,
                namespace=settings.temporal_namespace,
                data_converter=pydantic_data_converter,
                runtime=runtime,
                identity=identity.mine(),
            )
        except RuntimeError:
            await asyncio.sleep(0.5)
    return None


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Run until `stop`, then drain."""
    work = WorkLoop()
    work.start()
    client = await temporal(settings, stop)
    if client is None:
        return
    context = adapters(settings)
    world = await work(context.__aenter__())
    try:
        rules = BurstRules(
            max_tokens=settings.model_max_tokens,
            approval_s=settings.approval_s,
            snapshots=Cadence(turns=settings.snapshot_turns),
        )
        activities = wire(world, rules, work)
        await run_until(build(client, activities.bursts, activities.tasks), stop)
    finally:
        await work(context.__aexit__(None, None, None))
        work.stop()


def main() -> int:
    """Run the worker; the exit code."""
    settings = Settings()
    telemetry.configure("worker", settings)
    return lifecycle.run(lambda stop: serve(settings, stop))


if __name__ == "__main__":
    sys.exit(main())
