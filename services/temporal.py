"""What our clients of Temporal share: their runtime, and how a task's workflow is named and started."""

import logging
from datetime import timedelta

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from agents.contracts.run import TaskRef
from services.telemetry import TEMPORAL_CORE
from workflows.options import WORKFLOW_TASK_TIMEOUT

log = logging.getLogger(__name__)


def runtime() -> Runtime:
    """The runtime for this process's client: what its core logs comes through our handler."""
    forward = LogForwardingConfig(logging.getLogger(TEMPORAL_CORE), prepend_target_on_message=False)
    quiet = TelemetryFilter(core_level="WARN", other_level="ERROR")
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=quiet, forwarding=forward)))


def workflow_id(task_id: str) -> str:
    """The id of a task's workflow."""
    return f"task/{task_id}"


async def start_task(
    client: Client, ref: TaskRef, queue: str, patience: timedelta, *, even_if_it_ran: bool = False
) -> None:
    """Start a task's workflow; one that runs is left alone, and so is one that has run, unless `even_if_it_ran`.

    Raises:
        RPCError, RuntimeError, OSError: Temporal is away (a lazy client that cannot connect raises a bare
            RuntimeError).
    """
    reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE if even_if_it_ran else WorkflowIDReusePolicy.REJECT_DUPLICATE
    try:
        await client.start_workflow(
            "TaskWorkflow",
            ref,
            id=workflow_id(ref.task_id),
            task_queue=queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=reuse,
            task_timeout=WORKFLOW_TASK_TIMEOUT,
            rpc_timeout=patience,
        )
    except WorkflowAlreadyStartedError:
        log.info("the workflow has already run", extra={"task_id": ref.task_id})
