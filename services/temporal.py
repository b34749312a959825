"""What our clients of Temporal share: their runtime, and how a task's workflow is named and started."""

import asyncio
import logging
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.run import TaskRef
from services.telemetry import TEMPORAL_CORE
from workflows.options import WORKFLOW_TASK_TIMEOUT

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE = timedelta(seconds=5)
"""How long one call may take."""

_AWAY = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)


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


async def asked(call: Awaitable[T]) -> T:
    """What Temporal answers.

    Raises:
        LonghaulError: ``UNAVAILABLE`` where it is away or does not answer within `PATIENCE` and a second.
        RPCError: any other refusal.
    """
    try:
        async with asyncio.timeout(PATIENCE.total_seconds() + 1):
            return await call
    except RPCError as error:
        if error.status in _AWAY:
            raise _away(error) from error
        raise
    except (RuntimeError, OSError, TimeoutError) as error:  # a lazy client that cannot connect raises RuntimeError
        raise _away(error) from error


def _away(error: BaseException) -> LonghaulError:
    return LonghaulError(ErrorCode.UNAVAILABLE, f"Temporal cannot be reached ({error!s:.120})", retry_after_s=1)
