"""The runner: ``python -m services.sandbox.main``. Builds everything, serves until SIGTERM or the launcher's end.

Commands under way go on when it stops; the next runner attaches to them. They end with the launcher's pipe.
"""

import asyncio
import fcntl
import logging
import os
import resource
import select
import signal
import sys
from pathlib import Path

from aiohttp import web

from services.sandbox import beneath
from services.sandbox.app import Routes, build_app
from services.sandbox.choose import backend_of, too_weak
from services.sandbox.egress.addresses import Hosts, private_hosts
from services.sandbox.egress.credentials import read_credentials
from services.sandbox.egress.proxy import World
from services.sandbox.execs import Execs
from services.sandbox.intents import Intents
from services.sandbox.making import Maker
from services.sandbox.network import WayOut
from services.sandbox.pool import Pool
from services.sandbox.probe import Probe
from services.sandbox.quality import Quality
from services.sandbox.records import next_epoch
from services.sandbox.sandboxes import Sandboxes
from services.sandbox.snapshots import Snapshots
from services.settings import Settings
from services.snapshots.opening import shelves
from services.storage import storage_of
from services.telemetry import configure

SWEEP_S = 60.0
HEAD_ROOM = 0.1
"""The share of the host's memory that is left to those who ask: no sandbox is made ready in it."""
_LOG = logging.getLogger("services.sandbox")


async def serve(settings: Settings, way_out: WayOut) -> None:
    """Run until told to stop."""
    data_dir = settings.runner_data_dir.resolve()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    backend = backend_of(settings, data_dir)
    backend.setup()
    epoch, storage, intents = next_epoch(data_dir), storage_of(settings), Intents(data_dir)
    execs = Execs(backend, intents, epoch, way_out)
    snapshots = Snapshots(shelves(settings, connections=32))
    maker = Maker(data_dir, backend)
    maker.prepare()
    intents.prepare()
    pool = Pool(maker, backend, epoch, settings.runner_pool, lambda: not storage.full and memory_left() > HEAD_ROOM)
    sandboxes = Sandboxes(maker, backend, execs, snapshots, pool)
    probe = Probe(backend, sandboxes, execs)
    routes = Routes(sandboxes, execs, probe, storage, snapshots, pool, Quality(backend, execs))
    app = build_app(routes, settings.runner_token.get_secret_value())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=3.0)
    await runner.setup()
    await web.TCPSite(runner, settings.runner_host, settings.runner_port).start()
    _LOG.info("runner serves on %s:%s", settings.runner_host, settings.runner_port)
    adopting = asyncio.create_task(execs.adopt(sandboxes.homes()))
    keeping = asyncio.create_task(keep(sandboxes, execs, stop, settings.runner_pipe_fd))
    filling = asyncio.create_task(pool.keep())
    try:
        await stop.wait()
    finally:
        execs.closing.set()
        for task in (adopting, keeping, filling):
            task.cancel()
        await asyncio.gather(adopting, keeping, filling, return_exceptions=True)
        await runner.cleanup()
        await pool.close()
        await execs.close()
        intents.close()


async def keep(sandboxes: Sandboxes, execs: Execs, stop: asyncio.Event, pipe_fd: int) -> None:
    """Each second: has the launcher gone? Each minute: sweep what was left."""
    loop = asyncio.get_running_loop()
    sweep_at = 0.0
    while True:
        if pipe_fd >= 0 and hung_up(pipe_fd):
            stop.set()
        if loop.time() >= sweep_at:
            sweep_at = loop.time() + SWEEP_S
            await sandboxes.sweep()
            await execs.tidy()
        await asyncio.sleep(1.0)


def hung_up(fd: int) -> bool:
    """Whether the writers of a pipe are gone."""
    poller = select.poll()
    poller.register(fd, 0)
    return bool(poller.poll(0))


def memory_left() -> float:
    """The share of the host's memory that is available."""
    with open("/proc/meminfo") as file:
        told = {name: int(value.split()[0]) for name, value in (line.split(":") for line in file)}
    return told["MemAvailable"] / told["MemTotal"]


def hold(data_dir: Path) -> int:
    """Take the data directory for this process; SystemExit where another runner has it."""
    data_dir.mkdir(parents=True, exist_ok=True)
    fd = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another runner works in {data_dir}")
    return fd


def way_out_of(settings: Settings) -> WayOut:
    """What sandboxes may reach here; SystemExit where the operator's settings cannot be used."""
    setting = "LONGHAUL_RUNNER_PRIVATE_HOSTS"
    try:
        hosts = Hosts(private_hosts(settings.runner_private_hosts))
        setting = "LONGHAUL_RUNNER_CREDENTIALS_FILE"
        credentials = read_credentials(settings.runner_credentials_file)
    except ValueError as error:
        sys.exit(f"{setting}: {error}")
    return WayOut(World(hosts.resolve, hosts.judge), credentials)


def more_files() -> None:
    """Each sandbox that runs is a descriptor; what is usual at first is soon used up."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    """Entry."""
    settings = Settings()
    configure("runner", settings)
    if not settings.runner_token.get_secret_value():
        sys.exit("LONGHAUL_RUNNER_TOKEN is not set")
    if not beneath.supported():
        sys.exit("this kernel has no openat2: Linux 5.6 or later is needed")
    if (why := too_weak(settings)) is not None:
        sys.exit(why)
    way_out = way_out_of(settings)
    more_files()
    held = hold(settings.runner_data_dir.resolve())
    try:
        asyncio.run(serve(settings, way_out))
    finally:
        os.close(held)


if __name__ == "__main__":
    main()
