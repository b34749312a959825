"""One agent doing one round: a loop of bursts, and the durable waits between them. It holds cursors only."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from agents.contracts.errors import ErrorCode
    from agents.contracts.run import AgentOutcome, AgentRef, BurstEnd, BurstReason
    from workflows import options


@workflow.defn(name="AgentWorkflow")
class AgentWorkflow:
    """Runs bursts until one of them says that the round is over."""

    @workflow.init
    def __init__(self, ref: AgentRef) -> None:
        self._ref = ref
        self._outages = 0
        self._seen = 0

    @workflow.run
    async def run(self, ref: AgentRef) -> AgentOutcome:
        """The round's outcome. Cancelling it ends the burst under way first.

        Raises:
            ApplicationError: a burst failed for good, or this code has a bug (``INTERNAL``): the task ends by it,
                instead of the workflow task being tried for ever where nobody looks.
        """
        try:
            return await self._bursts()
        except FailureError:
            raise
        except Exception as error:
            raise ApplicationError(f"{type(error).__name__}: {error}", type=ErrorCode.INTERNAL.value) from error

    async def _bursts(self) -> AgentOutcome:
        bursts = 0
        while True:
            burst = await workflow.execute_activity("run_turns", self._ref, result_type=BurstEnd, **options.BURST)
            bursts += 1
            if burst.reason.final:
                return AgentOutcome(reason=burst.reason, verdict=burst.verdict, error=burst.error)
            if workflow.cancellation_reason() is not None:
                raise asyncio.CancelledError  # the burst ended by itself before the cancel could reach it
            await self._wait(burst)
            if workflow.info().is_continue_as_new_suggested() or bursts >= options.BURSTS_BEFORE_CONTINUE:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self._ref)

    @workflow.signal(name="wake")
    def wake(self, control_seq: int) -> None:
        """Something newer than `control_seq` lies in the rows; a wait ends early."""
        self._seen = max(self._seen, control_seq)

    async def _wait(self, burst: BurstEnd) -> None:
        if burst.reason is not BurstReason.ENGINE_UNAVAILABLE:
            self._outages = 0
            return
        backoff = min(2.0**self._outages, options.ENGINE_BACKOFF_MAX_S)
        delay = min(max(backoff, burst.retry_after_s or 0.0), options.ENGINE_BACKOFF_MAX_S)
        self._outages += 1
        try:
            await workflow.wait_condition(lambda: self._seen > burst.control_seq, timeout=timedelta(seconds=delay))
        except TimeoutError:
            return
