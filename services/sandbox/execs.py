"""Commands: started once, attached to for ever after, ended for sure."""

import asyncio
import logging
import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import ExecRequest
from services.sandbox.backend import Backend
from services.sandbox.home import Home
from services.sandbox.intents import Intents
from services.sandbox.journal import Entry
from services.sandbox.live import Live, instance_of
from services.sandbox.network import WayOut
from services.sandbox.records import Intent
from services.sandbox.run import Outcome, Run, killed
from services.sandbox.supervised.client import Supervisor, collect
from services.sandbox.supervised.messages import LinkLost, Order
from services.sandbox.supervised.protocol import State

IDLE_S = 600.0
"""How long a sandbox in which nothing runs keeps its processes. Its files stay."""
MAX_COMMAND_BYTES = 120_000  # Linux takes 128 KiB in one argument
ADOPTED_AT_ONCE = 16
_LOG = logging.getLogger(__name__)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class Execs:
    """Of every sandbox that runs one link and the commands under way; the rest is on disk. `epoch` is this start of
    the runner's: whoever was here before is replaced."""

    def __init__(
        self,
        backend: Backend,
        intents: Intents,
        epoch: int = 1,
        way_out: WayOut | None = None,
        *,
        idle_s: float = IDLE_S,
    ) -> None:
        self._backend = backend
        self._intents = intents
        self._epoch = epoch
        self._way_out = way_out or WayOut()
        self._idle_s = idle_s
        self._lives: dict[str, Live] = {}
        self.closing = asyncio.Event()
        self._closed: asyncio.Task[bool] | None = None

    def _live(self, home: Home) -> Live:
        found = self._lives.get(home.meta.id)
        if found is None:
            found = self._lives[home.meta.id] = Live(home, self._backend, self._epoch, self._way_out)
        found.used_at = asyncio.get_running_loop().time()
        return found

    def take_over(self, home: Home, supervisor: Supervisor) -> None:
        """Hold a new sandbox that runs already, by the link that there is."""
        self._live(home).given(supervisor)

    async def attach(self, home: Home, request: ExecRequest) -> Run | None:
        """A command that was asked for before; None where it may be started.

        Raises:
            LonghaulError: ``VALIDATION_FAILED`` where its id was used for another command; ``INVALID_ARGUMENTS`` for
                one that no system could start; ``SANDBOX_UNAVAILABLE``.
        """
        _check(request)
        live, entry = self._live(home), Entry(home.exec_folder(request.exec_id))
        if (run := live.runs.get(entry.name)) is not None:
            _same(run.intent, request)
            return run
        if not entry.folder.exists():
            return None
        async with live.lock:
            intent, run = await self._known(live, entry)
        _same(intent, request)
        return run

    async def start(self, home: Home, request: ExecRequest, call: str) -> Run:
        """Journal a command and start it, at most once; one that was asked for before is attached to.

        Raises:
            LonghaulError: ``SPAWN_FAILED``: nothing was started, so it may be asked again; else as `attach`.
        """
        _check(request)
        live, entry = self._live(home), Entry(home.exec_folder(request.exec_id))
        async with live.lock:
            intent, run = await self._known(live, entry)
            _same(intent, request)
            if run is not None:
                return run
            supervisor = await live.start()
            if intent is None:
                now = datetime.now(UTC)
                intent = Intent(request=request, call=call, instance=instance_of(supervisor), created_at=now)
                await asyncio.to_thread(self._intents.record, home, entry, intent)
            run = Run(entry, intent)
            if intent.instance != instance_of(supervisor):  # the one that it names has ended this very moment
                return await live.lose(run)
            return await live.execute(supervisor, run)

    @staticmethod
    async def _known(live: Live, entry: Entry) -> tuple[Intent | None, Run | None]:
        """What was asked under this name, and the command: None where it has not begun and may be started. One that
        may have run under a supervisor that is gone is lost. For the holder of the lock."""
        if (run := live.runs.get(entry.name)) is not None:
            return run.intent, run
        if not entry.folder.exists():
            return None, None
        intent, told = await asyncio.to_thread(_over, entry)
        if intent is not None and told is None:
            supervisor = await live.find()
            if (run := live.runs.get(entry.name)) is not None:
                return intent, run
            intent, told = await asyncio.to_thread(_over, entry)  # its end may have come to the disk meanwhile
            if intent is not None and told is None:
                begun = supervisor is None or instance_of(supervisor) != intent.instance
                return intent, await live.lose(Run(entry, intent)) if begun else None
        return intent, Run(entry, intent).end(told) if intent is not None and told is not None else None

    async def look(self, home: Home, command: str, timeout_s: float) -> tuple[str, int]:
        """Run a command of ours, which leaves no trace: what it printed, and how many commands there were with it.

        Raises:
            LonghaulError: ``SPAWN_FAILED``, ``SANDBOX_UNAVAILABLE``.
        """
        live = self._live(home)
        async with live.lock:
            supervisor = await live.start()
        try:
            async with asyncio.timeout(timeout_s * 2):
                env = self._backend.environment(home, {"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
                asked = Order(f"look-{secrets.token_hex(6)}", (command,), env, shell=True, timeout_s=timeout_s)
                started = await supervisor.start(asked)
                known = sum(entry.state is not State.CLOSED for entry in await supervisor.list())
                done = await collect(started)
                await supervisor.forget(started)
        except (LinkLost, TimeoutError) as error:
            raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, "the sandbox does not answer") from error
        return done.stdout.decode("utf-8", "replace"), known

    async def wait(self, run: Run, timeout_s: float) -> None:
        """Wait for its end, at most `timeout_s`, or until the runner closes."""
        if self._closed is None:
            self._closed = asyncio.create_task(self.closing.wait())
        if not run.ended.done():
            waiting: set[asyncio.Future[Any]] = {run.ended, self._closed}
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    async def kill(self, home: Home, exec_id: str) -> None:
        """End a journaled command with everything it started; returns when that is so. One that has not begun never
        will.

        Raises:
            LonghaulError: ``INTERNAL``: it does not end; ``SANDBOX_UNAVAILABLE``.
        """
        await self._kill(self._live(home), Entry(home.exec_folder(exec_id)))

    async def _kill(self, live: Live, entry: Entry) -> None:
        async with live.lock:
            intent, run = await self._known(live, entry)
            if intent is not None and run is None:
                await asyncio.to_thread(entry.finish, killed(intent).ended)
        if run is not None and not run.ended.done():
            await live.kill(run)

    async def kill_all(self, home: Home) -> None:
        """End every command of a sandbox. Raises as `kill` does."""
        live = self._live(home)
        async with live.lock:
            await live.find()
        entries = await asyncio.to_thread(unfinished, home)
        await asyncio.gather(*(self._kill(live, entry) for entry in entries))

    async def quiet(self, home: Home, timeout_s: float) -> bool:
        """Wait until no command runs in a sandbox; False where one still does. What is journaled and has not begun
        does not run.

        Raises:
            LonghaulError: ``SANDBOX_UNAVAILABLE``: nobody can say.
        """
        live = self._live(home)
        async with live.lock:
            await live.find()
        if waiting := [run.ended for run in live.runs.values()]:
            await asyncio.wait(waiting, timeout=timeout_s)
        return not live.runs

    async def end(self, home: Home) -> None:
        """End everything that runs in a sandbox which is to be destroyed.

        Raises:
            LonghaulError: ``SANDBOX_UNAVAILABLE``: it could not be ended.
        """
        live = self._live(home)
        async with live.lock:
            await live.end()
            self._lives.pop(home.meta.id, None)

    async def adopt(self, homes: Iterable[Home]) -> None:
        """At start: hold what another runner left running, so that it goes on, and its ends are recorded."""
        turns = asyncio.Semaphore(ADOPTED_AT_ONCE)

        async def one(home: Home) -> None:
            async with turns, self._live(home).lock:
                try:
                    await self._live(home).find()
                except (LonghaulError, OSError) as error:
                    _LOG.warning("sandbox %s is not taken over yet: %s", home.meta.id, error)

        await asyncio.gather(*(one(home) for home in homes if not home.gone.exists()))

    async def tidy(self) -> None:
        """End the processes of sandboxes that were idle for long."""
        since = asyncio.get_running_loop().time() - self._idle_s
        for name, live in list(self._lives.items()):
            if live.runs or live.used_at > since or live.lock.locked():
                continue
            async with live.lock:
                try:
                    if live.held() is not None:
                        await live.end()
                    self._lives.pop(name, None)
                except LonghaulError as error:
                    _LOG.warning("idle sandbox %s: %s", name, error)

    async def close(self) -> None:
        """Let go of everything; commands go on."""
        self.closing.set()
        await asyncio.gather(*(live.let_go() for live in self._lives.values()))


def unfinished(home: Home) -> list[Entry]:
    """The journaled commands that have no end."""
    entries = [Entry(folder) for folder in home.exec_folders()]
    return [entry for entry in entries if entry.ended() is None and entry.intent() is not None]


def _over(entry: Entry) -> tuple[Intent | None, Outcome | None]:
    """What the disk knows: what was asked, and its end. What surely did not run is forgotten here."""
    intent, ended = entry.intent(), entry.ended()
    if ended is not None and ended.reason == "spawn_failed":
        entry.remove()
        return None, None
    return intent, Outcome(ended, entry.kept(), entry.denied()) if ended is not None else None


def _same(intent: Intent | None, request: ExecRequest) -> None:
    before = intent.request if intent is not None else request
    if (before.command, before.env) != (request.command, request.env):
        raise LonghaulError(ErrorCode.VALIDATION_FAILED, f"exec {request.exec_id} was started with another command")


def _check(request: ExecRequest) -> None:
    """Refuse what would fail at every start: it must not look like a fault of the host, which is tried again."""
    words = [request.command, *request.env, *request.env.values()]
    if any("\0" in word for word in words):
        raise LonghaulError(ErrorCode.INVALID_ARGUMENTS, "a command cannot hold a zero byte")
    if any(_ENV_NAME.fullmatch(name) is None for name in request.env):
        raise LonghaulError(ErrorCode.INVALID_ARGUMENTS, "a variable's name is letters, digits and _")
    if sum(len(word.encode()) for word in words) > MAX_COMMAND_BYTES:
        raise LonghaulError(
            ErrorCode.INVALID_ARGUMENTS, f"a command has at most {MAX_COMMAND_BYTES} bytes; write a file and run that"
        )
