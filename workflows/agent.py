"""One agent doing one round: a loop of bursts, and the durable waits between them. It holds cursors only."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from agents.contracts.errors import ErrorCode
    from agents.contracts.run import AgentOutcome, AgentRef, BurstEnd
    from workflows import options


@workflow.defn(name="AgentWorkflow")
class AgentWorkflow:
    """Runs bursts until one of them says that the round is over."""

    @workflow.init
    def __init__(self, ref: AgentRef) -> None:
        self._ref = ref
        self._outages = 0
        self._seen = 0
        self._wakes = 0

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
            wakes = self._wakes
            burst = await workflow.execute_activity("run_turns", self._ref, result_type=BurstEnd, **options.BURST)
            bursts += 1
            if burst.reason.final:
                return AgentOutcome(reason=burst.reason, verdict=burst.verdict, error=burst.error)
            if workflow.cancellation_reason() is not None:
                raise asyncio.CancelledError  # the burst ended by itself before the cancel could reach it
            await self._wait(burst, wakes)
            if workflow.info().is_continue_as_new_suggested() or bursts >= options.BURSTS_BEFORE_CONTINUE:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self._ref)

    @workflow.signal(name="wake")
    def wake(self, control_seq: int) -> None:
        """Something newer than `control_seq` lies in the rows; a wait ends early."""
        self._seen = max(self._seen, control_seq)
        self._wakes += 1

    async def _wait(self, burst: BurstEnd, wakes: int) -> None:
        """Wait for what the burst's end names. `wakes` had come when it began: one that came since may tell of what it
        did not see, so the next burst looks at once."""
        if not burst.reason.outage:
            self._outages = 0
            if burst.reason.waits_for_rows:
                await self._woken(lambda: self._wakes > wakes, options.LOOK_AGAIN)
            return
        backoff = min(2.0**self._outages, options.ENGINE_BACKOFF_MAX_S)
        delay = min(max(backoff, burst.retry_after_s or 0.0), options.ENGINE_BACKOFF_MAX_S)
        self._outages += 1
        await self._woken(lambda: self._seen > burst.control_seq, timedelta(seconds=delay))

    async def _woken(self, condition: Callable[[], bool], at_most: timedelta) -> None:
        with suppress(TimeoutError):
            await workflow.wait_condition(condition, timeout=at_most)
