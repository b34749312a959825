"""Commands: started once, attached to for ever after, ended for sure."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import ExecRequest, ExecState, ExecStatus
from services.sandbox import keeper
from services.sandbox.backend import Backend, Plan
from services.sandbox.home import Home
from services.sandbox.journal import Entry, Kept, Phase
from services.sandbox.records import Ended, Intent
from services.sandbox.waiting import process_end

KEEPER = Path(keeper.__file__)
KILL_WAIT_S = 30.0
STARTING_POLL_S = 0.01
LOOK_AGAIN_S = 5.0  # the pid is a hint, the lock is the truth
MAX_COMMAND_BYTES = 120_000  # Linux takes 128 KiB in one argument
_LOG = logging.getLogger(__name__)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


class Execs:
    """Starts keepers and reads what they leave. Holds only the keepers it has started itself, to reap them."""

    def __init__(self, backend: Backend, pipe_fd: int = -1) -> None:
        self._backend = backend
        self._pipe_fd = pipe_fd
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self.closing = asyncio.Event()

    def journal(self, home: Home, request: ExecRequest, call: str) -> Entry:
        """Put the command in the journal, or find it there.

        Raises:
            LonghaulError: ``VALIDATION_FAILED`` where its id was used for another command;
                ``INVALID_ARGUMENTS`` for one that no system could start.
        """
        _check(request)
        entry = Entry(home.exec_folder(request.exec_id))
        intent = entry.intent()
        if intent is None:
            entry.record(Intent(request=request, call=call, created_at=datetime.now(UTC)))
        elif (intent.request.command, intent.request.env) != (request.command, request.env):
            raise LonghaulError(ErrorCode.VALIDATION_FAILED, f"exec {request.exec_id} was started with another command")
        return entry

    def start(self, home: Home, entry: Entry) -> None:
        """Start a keeper where none has begun.

        Raises:
            LonghaulError: ``SPAWN_FAILED``; nothing was started, so it may be asked again.
        """
        intent = entry.intent()
        lock = entry.take_start() if intent is not None else None
        if intent is None or lock is None:
            return
        try:
            self._spawn(entry, self._backend.plan(home, intent.request), lock)
            _LOG.info("a command was started", extra={"sandbox_id": home.meta.id, "exec_id": intent.request.exec_id})
        except OSError as error:
            raise LonghaulError(ErrorCode.SPAWN_FAILED, f"no keeper could be started: {error}") from error
        finally:
            os.close(lock)

    def _spawn(self, entry: Entry, plan: Plan, lock: int) -> None:
        inherited = [lock] if self._pipe_fd < 0 else [lock, self._pipe_fd]
        with (entry.folder / "keeper.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(KEEPER), str(entry.folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
                start_new_session=True,
                pass_fds=inherited,
            )
        self._children[child.pid] = child
        if child.stdin is not None:
            with child.stdin as pipe:
                pipe.write(json.dumps(plan.as_json()).encode())

    async def wait(self, entry: Entry, timeout_s: float) -> Phase:
        """Wait for the end, at most `timeout_s`, or until the runner closes; where it is then."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while True:
            phase = await asyncio.to_thread(entry.phase)
            left = until - loop.time()
            if phase in (Phase.ENDED, Phase.IDLE) or left <= 0 or self.closing.is_set():
                return phase
            started = entry.started() if phase is Phase.RUNNING else None
            if started is None:
                await asyncio.sleep(STARTING_POLL_S)
            elif await self._end_or_closing(started.pid, min(left, LOOK_AGAIN_S)):
                self._reap(started.pid)
                await asyncio.sleep(0)

    async def _end_or_closing(self, pid: int, timeout_s: float) -> bool:
        ending = asyncio.ensure_future(process_end(pid, timeout_s))
        closing = asyncio.ensure_future(self.closing.wait())
        try:
            await asyncio.wait({ending, closing}, return_when=asyncio.FIRST_COMPLETED)
            return ending.done() and ending.result()
        finally:
            for task in (ending, closing):
                task.cancel()
            await asyncio.gather(ending, closing, return_exceptions=True)

    def _reap(self, pid: int) -> None:
        child = self._children.get(pid)
        if child is not None and child.poll() is not None:
            del self._children[pid]

    def reap_all(self) -> None:
        """Collect keepers that ended while nobody waited."""
        for pid in list(self._children):
            self._reap(pid)

    async def kill(self, entry: Entry) -> None:
        """End a journaled command with everything it started; returns when that is so."""
        if entry.intent() is None or await asyncio.to_thread(entry.phase) is Phase.ENDED:
            return
        await asyncio.to_thread(entry.ask_end)
        if await asyncio.to_thread(entry.phase) is Phase.IDLE:
            await asyncio.to_thread(entry.end_unstarted)
        if await self.wait(entry, KILL_WAIT_S) is not Phase.ENDED and not self.closing.is_set():
            raise LonghaulError(ErrorCode.INTERNAL, "a command does not end although it was killed")

    async def kill_all(self, home: Home) -> None:
        """End every command of a sandbox."""
        entries = await asyncio.to_thread(self.unfinished, home)
        await asyncio.gather(*(self.kill(entry) for entry in entries))

    def unfinished(self, home: Home) -> list[Entry]:
        """The journaled commands that have no end."""
        entries = [Entry(folder) for folder in home.exec_folders()]
        return [e for e in entries if e.intent() is not None and e.phase() is not Phase.ENDED]

    def running(self, home: Home) -> bool:
        """Whether a keeper lives in this sandbox. What is journaled and not begun does not run."""
        return any(entry.phase() is not Phase.IDLE for entry in self.unfinished(home))

    def status(self, entry: Entry, request: ExecRequest, call: str) -> ExecStatus:
        """What to answer.

        Raises:
            LonghaulError: ``SPAWN_FAILED``; the command did not run.
        """
        intent, ended, started = entry.intent(), entry.ended(), entry.started()
        mine = intent is not None and bool(call) and intent.call == call
        begun = started.at if started is not None else intent.created_at.timestamp() if intent else 0.0
        if ended is None:
            return ExecStatus(exec_id=request.exec_id, state=ExecState.RUNNING, started=mine, started_at=_time(begun))
        if ended.reason == "spawn_failed":
            raise LonghaulError(
                ErrorCode.SPAWN_FAILED, self._backend.explain(Kept(entry.folder / "output.bin").text()[0])
            )
        return _finished(entry, request, ended, mine)


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


def _finished(entry: Entry, request: ExecRequest, ended: Ended, mine: bool) -> ExecStatus:
    output, truncated = Kept(entry.folder / "output.bin").text()
    reason = ended.reason
    assert reason != "spawn_failed"  # answered before
    return ExecStatus(
        exec_id=request.exec_id,
        state=ExecState.LOST if reason == "lost" else ExecState.EXITED,
        started=mine,
        exit_code=ended.exit_code,
        reason=reason,
        output=output,
        total_bytes=ended.total_bytes,
        truncated=truncated,
        started_at=_time(ended.started_at),
        duration_ms=ended.duration_ms,
    )


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
