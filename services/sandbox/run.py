"""One command as the runner has it: under way in its sandbox, or over."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.network import Denial
from agents.contracts.sandbox import MAX_DENIALS, ExecReason, ExecRequest, ExecState, ExecStatus
from services.sandbox.journal import Entry, Kept
from services.sandbox.records import Ended, Intent
from services.sandbox.supervised.client import Finished
from services.sandbox.supervised.command import Command
from services.sandbox.supervised.messages import Entry as Told
from services.sandbox.supervised.messages import Order
from services.sandbox.supervised.protocol import Reason

GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended, what is kept of its output, and what was refused to it."""

    ended: Ended
    kept: Kept = field(default_factory=Kept)
    denied: tuple[Denial, ...] = ()


class Run:
    """A journaled command. `command` is its handle while it is under way; `ended` is set once its end is on disk."""

    def __init__(self, entry: Entry, intent: Intent, command: Command | None = None) -> None:
        self.entry = entry
        self.intent = intent
        self.command = command
        self.denied = entry.denied() if command is not None else ()
        self.ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def deny(self, denial: Denial) -> None:
        """Note that a connection was refused while it ran: the same one once, and not without end."""
        if denial in self.denied or len(self.denied) >= MAX_DENIALS:
            return
        self.denied += (denial,)
        with contextlib.suppress(OSError):  # on a full disk it is told only by this runner
            self.entry.deny(self.denied)

    def end(self, outcome: Outcome) -> "Run":
        """Tell everybody who waits."""
        if not self.ended.done():
            self.ended.set_result(outcome)
        return self

    def status(self, request: ExecRequest, call: str) -> ExecStatus:
        """What to answer.

        Raises:
            LonghaulError: ``SPAWN_FAILED``; the command did not run.
        """
        mine = bool(call) and self.intent.call == call
        if not self.ended.done():
            at = self.intent.created_at
            return ExecStatus(exec_id=request.exec_id, state=ExecState.RUNNING, started=mine, started_at=at)
        return _status(request, self.ended.result(), started=mine)


def _status(request: ExecRequest, outcome: Outcome, *, started: bool) -> ExecStatus:
    ended = outcome.ended
    if ended.reason == "spawn_failed":
        raise LonghaulError(ErrorCode.SPAWN_FAILED, "the command could not be started in its sandbox")
    output, truncated = Kept(ended.total_bytes, outcome.kept.data).text()
    return ExecStatus(
        exec_id=request.exec_id,
        state=ExecState.LOST if ended.reason == "lost" else ExecState.EXITED,
        started=started,
        exit_code=ended.exit_code,
        reason=ended.reason,
        output=output,
        total_bytes=ended.total_bytes,
        truncated=truncated,
        started_at=datetime.fromtimestamp(ended.started_at, UTC),
        duration_ms=ended.duration_ms,
        denied=outcome.denied,
    )


def order(name: str, request: ExecRequest, env: dict[str, str]) -> Order:
    """What the supervisor is asked. Nothing is streamed: what is kept is taken when the command has ended, and until
    then it never waits for us."""
    return Order(
        name, (request.command,), env, shell=True, merge=True, timeout_s=request.timeout_s, grace_s=GRACE_S, window=0
    )


def outcome(finished: Finished) -> Outcome:
    """How it ended, from what the supervisor told."""
    told = finished.entry
    ended = Ended(
        exit_code=_code(told),
        reason=_reason(told),
        total_bytes=told.total_bytes,
        duration_ms=told.duration_us // 1000,
        started_at=told.started_ns / 1e9,
    )
    return Outcome(ended, Kept(told.total_bytes, finished.stdout))


def lost(intent: Intent, kept: Kept | None = None) -> Outcome:
    """The end of a command that was started, or may have been, and whose end nobody knows."""
    kept = kept or Kept()
    at = intent.created_at.timestamp()
    return Outcome(Ended(exit_code=None, reason="lost", total_bytes=kept.total, started_at=at), kept)


def killed(intent: Intent) -> Outcome:
    """The end of one that was killed before it began, or with its sandbox."""
    return Outcome(Ended(exit_code=137, reason="killed", started_at=intent.created_at.timestamp()))


_REASONS: dict[Reason, ExecReason | Literal["spawn_failed"]] = {
    Reason.NONE: "killed",  # it still ran when its whole sandbox was ended
    Reason.TIMEOUT: "timeout",
    Reason.OOM: "oom",
    Reason.KILLED: "killed",
    Reason.LOST: "lost",
    Reason.OUTPUT_LIMIT: "output_limit",
    Reason.SPAWN_FAILED: "spawn_failed",
}


def _code(told: Told) -> int | None:
    if told.reason is Reason.NONE:
        return 137
    return None if told.reason in (Reason.LOST, Reason.SPAWN_FAILED) else told.exit_code


def _reason(told: Told) -> ExecReason | Literal["spawn_failed"]:
    if told.reason is not Reason.EXITED:
        return _REASONS[told.reason]
    code = told.exit_code or 0
    return "signal" if 128 < code <= 192 else "exited"  # of the shell, or of what it ran: it tells that by its code
