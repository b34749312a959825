"""The Temporal workers of one process: which queue takes what, and how many at once."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from workflows import options
from workflows.agent import AgentWorkflow
from workflows.sizes import SizeGuard
from workflows.task import TaskWorkflow

MAX_CACHED_WORKFLOWS = 500
MAX_WORKFLOW_TASKS = 10
"""One at a time has the interpreter: more at once take longer each, and each has `options.WORKFLOW_TASK_TIMEOUT`."""

Activity = Callable[..., Any]


@dataclass(frozen=True)
class Slots:
    """How much of each kind one process has under way. What finds no slot waits at the server, and what holds one waits
    for nothing that needs another one, so few slots make it slow and never stop it."""

    bursts: int = 200
    tasks: int = 50
    long: int = 50


STANDARD_SLOTS = Slots()


def sandbox() -> SandboxedWorkflowRunner:
    """Workflows run in Temporal's sandbox; our pure packages pass through, so that a run costs kilobytes."""
    pure = SandboxRestrictions.default.with_passthrough_modules(
        "agents", "pydantic", "pydantic_core", "annotated_types"
    )
    return SandboxedWorkflowRunner(restrictions=pure)


WORKFLOWS = (TaskWorkflow, AgentWorkflow)


def build(
    client: Client, bursts: Sequence[Activity], tasks: Sequence[Activity], slots: Slots = STANDARD_SLOTS
) -> list[Worker]:
    """The workers: workflows, bursts of turns, a task's own activities, and those of them that take long."""
    shared: dict[str, Any] = {
        "interceptors": [SizeGuard()],
        "graceful_shutdown_timeout": options.GRACEFUL_SHUTDOWN,
        "max_heartbeat_throttle_interval": options.MAX_HEARTBEAT_THROTTLE,
    }
    workflows = Worker(
        client,
        task_queue=options.WORKFLOW_QUEUE,
        workflows=list(WORKFLOWS),
        workflow_runner=sandbox(),
        max_cached_workflows=MAX_CACHED_WORKFLOWS,
        max_concurrent_workflow_tasks=MAX_WORKFLOW_TASKS,
        sticky_queue_schedule_to_start_timeout=options.STICKY_TIMEOUT,
        **shared,
    )
    queues = (
        (options.BURST_QUEUE, bursts, slots.bursts),
        (options.TASK_QUEUE, tasks, slots.tasks),
        (options.LONG_QUEUE, tasks, slots.long),
    )
    return [
        workflows,
        *(
            Worker(client, task_queue=queue, activities=work, max_concurrent_activities=count, **shared)
            for queue, work, count in queues
        ),
    ]


async def run_until(workers: Sequence[Worker], stop: asyncio.Event) -> None:
    """Run the workers until `stop`; then they take nothing new, and bursts drain.

    Raises:
        RuntimeError: a worker failed for good.
    """
    running = [asyncio.create_task(worker.run()) for worker in workers]
    asked = asyncio.create_task(stop.wait())
    await asyncio.wait([asked, *running], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    await asyncio.gather(*(worker.shutdown() for worker in workers))
    await asyncio.gather(*running)
