"""The activity that runs a burst of turns."""

import asyncio
from concurrent.futures import Future

from temporalio import activity

from agents.contracts.run import AgentRef, BurstEnd
from workflows.activities.doing import Elsewhere, doing
from workflows.turns import Bursts


class TurnActivities:
    """Bursts, each under heartbeats; a worker that shuts down tells them to drain."""

    def __init__(self, bursts: Bursts, elsewhere: Elsewhere) -> None:
        self._bursts = bursts
        self._elsewhere = elsewhere

    @activity.defn(name="run_turns")
    async def run_turns(self, ref: AgentRef) -> BurstEnd:
        """Run turns until something has to be waited for or the round is over."""
        drain: Future[None] = Future()
        watch = asyncio.create_task(_on_shutdown(drain))
        try:
            return await doing(self._elsewhere, self._bursts.run(ref, drain))
        finally:
            watch.cancel()


async def _on_shutdown(drain: "Future[None]") -> None:
    await activity.wait_for_worker_shutdown()
    drain.set_result(None)
