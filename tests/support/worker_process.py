"""A worker process as `services.worker.main` runs it, with a model that is scripted: ``python -m`` this, settings by
environment. The plays: `slow`, a command that leaves a line, takes six seconds and leaves another; `launch`, a call
that cannot be undone and takes four seconds."""

import asyncio
import sys
from dataclasses import replace
from typing import Any

from services import lifecycle, telemetry
from services.settings import Settings
from services.worker import main as worker
from services.worker.loop import WorkLoop
from services.worker.run import build, run_until
from tests.support.approvals import TOOLBOX
from tests.support.scripts import ScriptedModel, says
from tests.support.team import finish, plan, review
from tests.support.turns import QUICK

SLOW = "echo begin >> log; sleep 6; echo end >> log"
PLAYS = {
    "slow": says(("shell", {"command": SLOW, "timeout_s": 60})),
    "launch": says(("launch", {"name": "one", "seconds": 4})),
}


def lines(play: str) -> dict[str, Any]:
    """What the model says."""
    return {
        "planner/1.plan/1/1/m1": plan("only"),
        "executor/1.only/1/1/m1": PLAYS[play],
        "executor/1.only/1/2/m1": finish(),
        "reviewer/1.only/1/1/m1": review("approve"),
    }


async def serve(settings: Settings, stop: asyncio.Event, play: str) -> None:
    """As the real one."""
    work = WorkLoop()
    work.start()
    client = await worker.temporal(settings, stop)
    assert client is not None
    context = worker.adapters(settings)
    world = replace(await work(context.__aenter__()), model=ScriptedModel(lines(play)))
    activities = worker.wire(world, QUICK, work, TOOLBOX)
    try:
        await run_until(build(client, activities.bursts, activities.tasks), stop)
    finally:
        await work(context.__aexit__(None, None, None))
        work.stop()


def main() -> int:
    """The exit code."""
    settings = Settings()
    telemetry.configure("test-worker", settings)
    return lifecycle.run(lambda stop: serve(settings, stop, sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
