"""The relay: ``python -m services.relay.main``. One works at a time; another may stand by.

It starts, stays up and recovers whatever of Postgres, NATS and Temporal is away.
"""

import asyncio
import logging
import sys
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from functools import partial

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from services import lifecycle, telemetry
from services.mailbox import subjects
from services.mailbox.link import connect
from services.mailbox.live import NatsLive
from services.relay.admission import Admission
from services.relay.dead_workers import DeadWorkers
from services.relay.loop import repeat
from services.relay.mail import Mailroom, PostBag
from services.relay.old_answers import purge
from services.relay.outbox import Outbox
from services.relay.questions import close_questions
from services.relay.reservations import settle_orphans
from services.relay.sandboxes import Reaper
from services.relay.snapshots import EVERY_S, FIRST_AFTER_S, Collector
from services.relay.starts import Reconciler, Workflows
from services.relay.waking import Waker
from services.sandbox.client import RunnerClient
from services.settings import Settings
from services.snapshots.opening import shelves
from services.store.approvals import expire_due
from services.store.database import Database
from services.temporal import runtime as temporal_runtime
from workflows.options import WORKFLOW_QUEUE

log = logging.getLogger(__name__)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Relay until `stop`."""
    db = Database(settings.pg_url, pool_size=4)
    link = await connect(settings, "relay")
    temporal = await Client.connect(
        settings.temporal_address,
        namespace=settings.temporal_namespace,
        data_converter=pydantic_data_converter,
        runtime=temporal_runtime(),
        lazy=True,
    )
    names = ("outbox", "messages", "queue", "waiting", "cancels")
    pokes = {name: asyncio.Event() for name in names}  # one for each that is hurried: each clears its own
    await link.subscribe(subjects.WAKE_OUTBOX, lambda _subject, _body: _set(pokes.values()))
    workflows = Workflows(temporal, WORKFLOW_QUEUE)
    reconciler = Reconciler(db, workflows, NatsLive(link))
    admission = Admission(db, reconciler, settings.running_tasks)
    runner = RunnerClient(settings.runner_url, settings.runner_token.get_secret_value(), patience_s=0)
    reaper = Reaper(db, runner)
    outbox, waker = Outbox(db, link), Waker(db, workflows)
    post, mailroom = PostBag(db, link), Mailroom(db, link, pokes["waiting"].set)
    collector = Collector(db, shelves(settings))
    log.info("the relay is up")
    work = (
        repeat("outbox", outbox.drain, stop, every_s=0.25, idle_max_s=1.0, wake=pokes["outbox"]),
        repeat("messages", post.drain, stop, every_s=0.25, idle_max_s=1.0, wake=pokes["messages"]),
        repeat("mailroom", mailroom.take, stop, every_s=0.05),
        repeat("stranded", mailroom.deliver_stranded, stop, every_s=5.0),
        repeat("unanswerable", partial(close_questions, db), stop, every_s=1.0),
        repeat("waiting", waker.wake_waiting, stop, every_s=1.0, wake=pokes["waiting"]),
        repeat("queue", admission.round, stop, every_s=1.0, wake=pokes["queue"]),
        repeat("dead workers", DeadWorkers(temporal).release, stop, every_s=0.5),
        repeat("cancels", reconciler.tell_of_cancels, stop, every_s=1.0, wake=pokes["cancels"]),
        repeat("approvals", partial(expire_due, db), stop, every_s=1.0),
        repeat("sandboxes", reaper.reap, stop, every_s=60.0),
        repeat("stalled", reconciler.find_stalled, stop, every_s=30.0),
        repeat("reservations", partial(settle_orphans, db), stop, every_s=30.0),
        repeat("old answers", partial(purge, db), stop, every_s=60.0),
        _later(FIRST_AFTER_S, repeat("snapshots", collector.collect, stop, every_s=EVERY_S), stop),
    )
    try:
        await asyncio.gather(*work)
    finally:
        await runner.close()
        await link.close()
        await db.close()


async def _later(seconds: float, work: Coroutine[None, None, None], stop: asyncio.Event) -> None:
    """Begin some time after the start, unless it is over before."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
    await work


def _set(events: Iterable[asyncio.Event]) -> None:
    for event in events:
        event.set()


def main() -> int:
    """Run; returns the exit code."""
    settings = Settings()
    telemetry.configure("relay", settings)
    return lifecycle.run(partial(serve, settings))


if __name__ == "__main__":
    sys.exit(main())
