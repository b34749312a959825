"""One sandbox as it runs: its supervisor, held by one link, and the commands under way in it."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.network import Denial
from services.sandbox import network
from services.sandbox.backend import Backend
from services.sandbox.home import Home
from services.sandbox.journal import Entry
from services.sandbox.network import WayOut
from services.sandbox.run import GRACE_S, Outcome, Run, killed, lost, order, outcome
from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.command import Command
from services.sandbox.supervised.last import forget_last, read_last
from services.sandbox.supervised.messages import LinkLost, Refused
from services.sandbox.supervised.protocol import Fault, State
from services.storage import NO_SPACE

ANSWER_S = 10.0
KILL_WAIT_S, RECORD_WAIT_S = 30.0, 5.0
PAUSE_S, LOOK_S = 0.2, 0.02
_LOG = logging.getLogger(__name__)


class Live:
    """`lock` is held by whoever finds, starts or ends the supervisor, or starts a command under it."""

    def __init__(self, home: Home, backend: Backend, epoch: int, way_out: WayOut) -> None:
        self.home = home
        self.lock = asyncio.Lock()
        self.runs: dict[str, Run] = {}
        self.used_at = asyncio.get_running_loop().time()
        self._backend = backend
        self._epoch = epoch
        self._way_out = way_out
        self._supervisor: Supervisor | None = None
        self._following: set[asyncio.Task[None]] = set()

    def held(self) -> Supervisor | None:
        """The supervisor, where there is a link to it."""
        return None if self._supervisor is None or self._supervisor.lost else self._supervisor

    def given(self, supervisor: Supervisor) -> None:
        """Its supervisor, under which nothing has run."""
        self._supervisor = supervisor

    async def find(self) -> Supervisor | None:
        """Its supervisor; None: nothing runs. Then every command that it knows is in `runs`, or its end is on disk.

        Raises:
            LonghaulError: ``SANDBOX_UNAVAILABLE``.
        """
        if (held := self.held()) is not None:
            return held
        with _asked():
            found = await self._hold(await self._backend.find(self.home, self._epoch))
        if found is None:
            await asyncio.to_thread(take_last_words, self.home)
        return found

    async def start(self) -> Supervisor:
        """Its supervisor, started where nothing runs; else as `find`.

        Raises:
            LonghaulError: ``SPAWN_FAILED``, ``SANDBOX_UNAVAILABLE``.
        """
        if (found := await self.find()) is not None:
            return found
        with _asked():
            started = await self._backend.start(self.home, self._epoch)
            await self._hold(started)
            return started

    async def _hold(self, supervisor: Supervisor | None) -> Supervisor | None:
        before, self._supervisor = self._supervisor, None
        if before is not None:
            await before.close()
        if supervisor is None:
            return None
        self._way_out.join(self.home, supervisor, self._denied)
        try:
            async with asyncio.timeout(ANSWER_S):
                for told in await supervisor.list():
                    if told.id not in self.runs:
                        await self._take_in(supervisor, told.id)
        except BaseException:
            await supervisor.close()
            raise
        self._supervisor = supervisor
        return supervisor

    def _denied(self, denial: Denial) -> None:
        """Whose connection it was is not known: it is told of every command that runs now."""
        for run in self.runs.values():
            run.deny(denial)

    async def _take_in(self, supervisor: Supervisor, name: str) -> None:
        """A command that another runner started: followed, or forgotten where its end is on disk."""
        command = await supervisor.attach(name, window=0)
        entry = Entry(self.home.exec_named(name))
        intent, ended = await asyncio.to_thread(lambda: (entry.intent(), entry.ended()))
        if intent is not None and ended is None:
            self.follow(Run(entry, intent, command))
        elif command.entry.state is State.CLOSED:
            await supervisor.forget(command)

    async def execute(self, supervisor: Supervisor, run: Run) -> Run:
        """Start a command whose intent, on disk, names this supervisor.

        Raises:
            LonghaulError: of the supervisor's fault where nothing was started; then it is not journaled any more.
                ``SANDBOX_UNAVAILABLE``: it may have been started; ask again.
        """
        request = run.intent.request
        env = {**network.environment(self.home.meta.network), **request.env}
        asked = order(run.entry.name, request, self._backend.environment(self.home, env))
        try:
            async with asyncio.timeout(ANSWER_S):
                run.command = await supervisor.start(asked)
        except LinkLost:
            with _asked():
                await self.find()
            return self.runs.get(run.entry.name) or await self.lose(run)
        except Refused as refused:
            await asyncio.to_thread(run.entry.remove)
            raise LonghaulError(refused.code, f"the command could not be started: {refused.detail}") from refused
        except TimeoutError as error:
            await supervisor.close()  # the next one to ask looks what has become of it
            raise _silent() from error
        _LOG.info("a command was started", extra={"sandbox_id": self.home.meta.id, "exec_id": request.exec_id})
        return self.follow(run)

    @staticmethod
    async def lose(run: Run) -> Run:
        """Record that a command was started, or may have been, and that nobody knows its end."""
        told = lost(run.intent, await asyncio.to_thread(run.entry.kept))
        await asyncio.to_thread(run.entry.finish, told.ended)
        return run.end(told)

    def follow(self, run: Run) -> Run:
        """Go with a command to its end, and put that on disk."""
        self.runs[run.entry.name] = run
        task = asyncio.create_task(self._to_its_end(run), name=f"exec {run.entry.name}")
        self._following.add(task)
        task.add_done_callback(self._following.discard)
        return run

    async def _to_its_end(self, run: Run) -> None:
        told = replace(await self._finished(run), denied=run.denied)
        if told.ended.reason == "spawn_failed":  # forgotten first: an intent that is left over may be started
            await self._forget(run)
            await asyncio.to_thread(run.entry.remove)
        else:
            await self._store(run, told)
        self.used_at = asyncio.get_running_loop().time()
        self.runs.pop(run.entry.name, None)
        run.end(told)
        await self._forget(run)

    async def _finished(self, run: Run) -> Outcome:
        """Wait for its end, over as many links as it takes; lost where the supervisor that knew it is gone."""
        while run.command is not None:
            try:
                if (held := self.held()) is None:
                    raise LinkLost
                return outcome(await held.kept(run.command))
            except (LinkLost, Refused):
                run.command = await self._again(run)
        ended = await asyncio.to_thread(run.entry.ended)
        return lost(run.intent) if ended is None else Outcome(ended, await asyncio.to_thread(run.entry.kept))

    async def _again(self, run: Run) -> Command | None:
        while True:
            async with self.lock:
                try:
                    with _asked():
                        found = await self.find()
                        if found is None or instance_of(found) != run.intent.instance:
                            return None
                        return await found.attach(run.entry.name, window=0)
                except Refused:
                    return None
                except (LonghaulError, OSError) as error:
                    _LOG.warning("a sandbox with a command under way does not answer: %s", error)
            await asyncio.sleep(PAUSE_S)

    async def _store(self, run: Run, told: Outcome) -> None:
        """Again and again on a full disk: until its end is on disk, it has none for anybody."""
        said = False
        while True:
            try:
                return await asyncio.to_thread(run.entry.finish, told.ended, told.kept.data)
            except FileNotFoundError:
                return None  # destroyed meanwhile
            except OSError as error:
                if error.errno not in NO_SPACE and not said:
                    _LOG.exception("the end of a command cannot be recorded; it is tried again")
                    said = True
            await asyncio.sleep(PAUSE_S)

    async def _forget(self, run: Run) -> None:
        command, run.command = run.command, None
        if command is None or (held := self.held()) is None or instance_of(held) != run.intent.instance:
            return
        with contextlib.suppress(LinkLost, Refused):  # then it is forgotten when a runner lists it again
            await held.forget(command)

    async def kill(self, run: Run) -> None:
        """End a command under way with everything it started; returns when that is so.

        Raises:
            LonghaulError: ``INTERNAL``: it does not end.
        """
        try:
            async with asyncio.timeout(KILL_WAIT_S):
                while not run.ended.done() and run.command is not None:
                    with contextlib.suppress(LinkLost, Refused):
                        await run.command.kill(GRACE_S)
                        break
                    await asyncio.sleep(LOOK_S)  # it is being found again
        except TimeoutError as error:
            raise LonghaulError(ErrorCode.INTERNAL, "a command does not end although it was killed") from error
        await asyncio.wait({run.ended}, timeout=RECORD_WAIT_S)

    async def end(self) -> None:
        """End everything in it. For the holder of the lock.

        Raises:
            LonghaulError: ``SANDBOX_UNAVAILABLE``: it could not be ended.
        """
        await self._backend.stop(self.home)
        await self.let_go()
        for run in self.runs.values():
            run.end(killed(run.intent))
        self.runs.clear()

    async def let_go(self) -> None:
        """Close the link; what runs goes on."""
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        if self._supervisor is not None:
            await self._supervisor.close()
        self._supervisor = None


def take_last_words(home: Home) -> None:
    """Record the ends that a supervisor told before it ended by itself. A repeat does nothing."""
    words = read_last(home.root)
    for finished in words.commands if words is not None else ():
        entry = Entry(home.exec_named(finished.entry.id))
        intent = entry.intent()
        if intent is not None and words is not None and intent.instance == words.instance and entry.ended() is None:
            told = outcome(finished)
            if told.ended.reason != "spawn_failed":
                entry.finish(told.ended, told.kept.data)
            else:
                entry.remove()
    forget_last(home.root)


def instance_of(supervisor: Supervisor) -> str:
    """Which one it is; another one where it was started again."""
    return supervisor.greeting.instance.hex() if supervisor.greeting is not None else ""


def _silent() -> LonghaulError:
    return LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, "the sandbox's supervisor does not answer", retry_after_s=1)


@contextmanager
def _asked() -> Iterator[None]:
    """Faults of the link to a supervisor, as what they are for a caller: asking again may help."""
    try:
        yield
    except (LinkLost, TimeoutError) as error:
        raise _silent() from error
    except Refused as refused:
        if refused.fault != Fault.STALE:
            raise
        raise _silent() from refused
