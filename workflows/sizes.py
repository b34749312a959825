"""The guard that keeps anything big out of Temporal: a result or an argument over the hard cap is a failure with a
code, raised before the server sees it (an oversized argument would otherwise hang the workflow for ever)."""

import logging
from typing import Any

from pydantic import BaseModel
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ContinueAsNewInput,
    ExecuteActivityInput,
    Interceptor,
    StartActivityInput,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle, ChildWorkflowHandle

from agents.contracts.errors import ErrorCode

SOFT_BYTES = 8 * 1024
HARD_BYTES = 32 * 1024

log = logging.getLogger(__name__)


class SizeGuard(Interceptor):
    """Checks what activities return and what workflows pass on."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Checks results."""
        return _Activity(next)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        """Checks arguments."""
        return _Workflow


class _Activity(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        result = await super().execute_activity(input)
        check([result], f"the result of {getattr(input.fn, '__name__', 'an activity')}")
        return result


class _Workflow(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
        check(input.args, f"the argument of {input.activity}")
        return super().start_activity(input)

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> ChildWorkflowHandle[Any, Any]:
        check(input.args, f"the argument of {input.workflow}")
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> Any:
        check(input.args, "the state of a continued workflow")
        return super().continue_as_new(input)


def check(values: Any, what: str) -> None:
    """Measure values as they would be sent.

    Raises:
        ApplicationError: ``PAYLOAD_TOO_LARGE``, final.
    """
    size = sum(len(v.model_dump_json().encode()) for v in values if isinstance(v, BaseModel))
    if size > HARD_BYTES:
        raise ApplicationError(
            f"{what} has {size} bytes; at most {HARD_BYTES} cross Temporal, the rest goes by reference",
            type=ErrorCode.PAYLOAD_TOO_LARGE.value,
            non_retryable=True,
        )
    if size > SOFT_BYTES:
        log.warning("%s has %d bytes; keep it under %d", what, size, SOFT_BYTES)
