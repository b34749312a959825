"""The API's process: ``python -m services.api.main``. Builds the parts, serves until it is told to stop."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import uvicorn
from sqlalchemy import text

from services import lifecycle, telemetry
from services.api.app import create_app
from services.api.auth import Keyring
from services.api.hub import Hub
from services.api.limits import LimitChecks
from services.api.parts import Parts, Probe
from services.mailbox import link as nats
from services.mailbox import subjects
from services.mailbox.link import Link
from services.mailbox.live import NatsLive
from services.objects.abandoned import give_up_abandoned
from services.objects.s3 import S3Objects
from services.prompts import prompts
from services.recording.recorder import Recorder
from services.sandbox.client import RunnerClient
from services.settings import Settings
from services.snapshots.s3 import S3Shelf
from services.storage import storage_of
from services.store.database import Database

_GRACE_S = 2
"""What requests under way get to end; streams are told to at once."""


def main() -> int:
    """Run the API; the exit code is 0 for an end that was asked for."""
    settings = Settings()
    telemetry.configure("api", settings)
    return lifecycle.run(lambda stop: serve(settings, stop))


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, then drain: new connections are refused, streams end, requests get `_GRACE_S`."""
    async with build(settings) as parts:
        server = _Server(_config(settings, parts))
        serving = asyncio.create_task(server.serve())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        parts.hub.close()
        server.should_exit = True
        await serving
        if not stop.is_set():
            raise RuntimeError(f"cannot serve on {settings.api_host}:{settings.api_port}")


@asynccontextmanager
async def build(settings: Settings) -> AsyncIterator[Parts]:
    """The parts over real servers, none of which needs to be there yet."""
    async with AsyncExitStack() as stack:
        db = Database(settings.pg_url)
        stack.push_async_callback(db.close)
        objects = S3Objects(settings)
        stack.push_async_callback(objects.close)
        tidying = asyncio.create_task(give_up_abandoned(objects))
        stack.callback(tidying.cancel)
        link = await nats.connect(settings, "api", wait_s=1.0)
        stack.push_async_callback(link.close)
        runner = RunnerClient(settings.runner_url, settings.runner_token.get_secret_value(), patience_s=1.0)
        await stack.enter_async_context(runner)
        hub, live = Hub(db), NatsLive(link)
        await _feed(hub, link)
        yield Parts(
            db=db,
            keyring=Keyring(db),
            objects=objects,
            shelf_of=lambda tenant_id: S3Shelf(objects.bucket, tenant_id),
            live=live,
            limits=LimitChecks(runner),
            storage=storage_of(settings),
            hub=hub,
            recorder=Recorder(db, objects, prompts()),
            probes=_probes(db, objects, link),
            model_configured=bool(settings.model_base_url and (settings.model_full or settings.model_fast)),
        )


async def _feed(hub: Hub, link: Link) -> None:
    def event(subject: str, body: bytes) -> None:
        hub.on_event(*subjects.task_of(subject), body)

    def delta(subject: str, body: bytes) -> None:
        hub.on_delta(*subjects.task_of(subject), body)

    await link.subscribe(subjects.ALL_EVENTS, event)
    await link.subscribe(subjects.ALL_LIVE, delta)


def _probes(db: Database, objects: S3Objects, link: Link) -> dict[str, Probe]:
    async def database() -> None:
        async with db.begin() as conn:
            await conn.execute(text("SELECT 1 FROM tasks LIMIT 1"))

    async def nats_link() -> None:
        if not link.connected:
            raise ConnectionError("not connected")
        await link.client.flush(2)

    return {"database": database, "objects": objects.ping, "nats": nats_link}


def _config(settings: Settings, parts: Parts) -> uvicorn.Config:
    return uvicorn.Config(
        create_app(parts),
        host=settings.api_host,
        port=settings.api_port,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=65,
        backlog=512,
    )


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: our lifecycle has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


if __name__ == "__main__":
    sys.exit(main())
