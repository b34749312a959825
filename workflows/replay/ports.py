"""The turn loop's ports as a recorded round answers them. Nothing is done: what was, is told, and what the loop decides
is compared with it."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NoReturn, Protocol

from agents.contracts.errors import ErrorCode, ErrorInfo, LonghaulError
from agents.contracts.ids import coordinate
from agents.contracts.model import Delta, ModelReply, ModelRequest
from agents.contracts.recorded import RecordedRound
from agents.contracts.run import AgentRef, BurstReason, Controls
from agents.contracts.sandbox import Owner
from agents.contracts.tool import ToolResult
from agents.contracts.trajectory import Attempt, Brief, Turn
from workflows.ports import CallContext, Kept
from workflows.records import (
    NO_ROWS,
    Answer,
    Begun,
    CallRows,
    Heard,
    Held,
    Intent,
    Opened,
    Outgoing,
    Results,
    RoundEnd,
    Start,
    Waiting,
)
from workflows.replay.differences import Differs

OUTSIDE = frozenset({BurstReason.CANCELLED, BurstReason.BUDGET, BurstReason.SANDBOX_LOST})
"""Ends that do not follow from the trajectory."""

ENGINE_ENDS = frozenset({ErrorCode.ENGINE_REFUSED, ErrorCode.REPLAY_MISMATCH, ErrorCode.REPLAY_NOT_RECORDED})
"""Faults of a model that ended the round at once; the call has no reply."""


class RecordingEnds(Exception):
    """The recorded round has nothing further; what came after it did not come out of the loop."""


class Watch(Protocol):
    """Sees what the loop does. May raise `Differs`."""

    def asked(self, request: ModelRequest) -> None:
        """A request is about to be answered."""
        ...

    def checked(self, call: str, key: str, refusal: ToolResult | None) -> None:
        """A tool call (``turn/i``, of the model call `call`) was refused, or accepted."""
        ...

    def gated(self, call: str, keys: tuple[str, ...]) -> None:
        """Of a reply, these tool calls wait for a person."""
        ...


@dataclass
class Script:
    """A recorded round and how far it has been played."""

    ref: AgentRef
    round: RecordedRound
    brief: Brief
    before: list[Turn]
    watch: Watch
    begun: int = 0
    """Turns of the round that were begun; the last of them is open."""
    made: set[str] = field(default_factory=set)
    """Tool calls that were accepted."""

    @property
    def turn(self) -> Turn:
        """The open turn."""
        return self.round.turns[self.begun - 1]

    @property
    def at_the_end(self) -> bool:
        """Whether no recorded turn is left."""
        return self.begun == len(self.round.turns)

    def call(self, turn: int, k: int = 1) -> str:
        """The coordinate of a model call."""
        return coordinate(self.ref.place, self.ref.round, turn, k)

    def last_call(self) -> str:
        """The coordinate of the last recorded call of the open turn."""
        return self.call(self.turn.turn, self.turn.attempts[-1].k if self.turn.attempts else 1)

    def goes_on(self, turn: int) -> NoReturn:
        """The loop wants a turn that was not recorded."""
        reason, error = self.round.reason, self.round.error
        by_engine = reason is BurstReason.FAILED and error is not None and error.code in ENGINE_ENDS
        if reason is None or reason in OUTSIDE or by_engine:
            raise RecordingEnds
        raise Differs(self.call(turn), "the round goes on", f"it ended: {reason.value}", "another turn begins")


class ReplayLedger:
    """Implements `workflows.ports.Ledger`."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def open(self, ref: AgentRef) -> Opened:
        """The brief."""
        return Opened(fence=1, brief=self._script.brief, turns=0)

    async def load(self, held: Held, brief_round_only: bool, after: tuple[int, int] | None = None) -> list[Turn]:
        """What was before."""
        script = self._script
        turns = [*([] if brief_round_only else script.before), *script.round.turns[: script.begun]]
        return [turn for turn in turns if after is None or (turn.round, turn.turn) > after]

    def check_room(self) -> None:
        """Nothing is stored."""

    async def begin(self, held: Held, key: str, done: Results, intent: Intent) -> Begun:
        """The recorded inputs of the turn."""
        self._take(done)
        script = self._script
        if intent.opens:
            if script.at_the_end:
                script.goes_on(intent.turn)
            script.begun += 1
        return Begun(inputs=script.turn.inputs)

    async def answer(self, held: Held, key: str, answer: Answer) -> Controls:
        """Compare what the reply was taken for."""
        script, turn = self._script, self._script.turn
        call = script.call(answer.turn, answer.k)
        then = next((attempt for attempt in turn.attempts if attempt.k == answer.k), Attempt(k=answer.k))
        if _code(then.bad) != _code(answer.bad):
            raise Differs(call, "the reply is judged otherwise", _judged(then.bad), _judged(answer.bad))
        gave_up = turn.failed if turn.attempts and turn.attempts[-1].k == answer.k else None
        if (gave_up is None) != (answer.failed is None):
            raise Differs(call, "what follows on an unusable reply differs", _follows(gave_up), _follows(answer.failed))
        if answer.bad is None:
            script.watch.gated(call, tuple(f"{answer.turn}/{question.i}" for question in answer.asks))
        return Controls()

    async def call_rows(self, held: Held, turn: int) -> CallRows:
        """Nothing: what was decided is in the results."""
        return NO_ROWS

    async def start(self, held: Held, key: str, start: Start) -> None:
        """Nothing is noted."""

    async def ask(self, held: Held, key: str, question: Outgoing) -> Heard:
        """Never called: what came of a question is its recorded result."""
        raise NotImplementedError

    async def keep(self, held: Held, key: str, done: Results, waiting: Waiting | None = None) -> None:
        """Compare results."""
        self._take(done)

    async def end(self, held: Held, key: str, done: Results, end: RoundEnd) -> bool:
        """Compare the end. A control call that did not end its round met unread mail."""
        self._take(done)
        script, reason = self._script, self._script.round.reason
        if end.unless_mail and not script.at_the_end:
            return False
        if reason is None or (reason in OUTSIDE and reason is not end.reason):
            raise RecordingEnds
        call = script.last_call() if script.begun else script.call(1)
        if reason is not end.reason or not script.at_the_end:
            then = reason.value if script.at_the_end else "another turn begins"
            raise Differs(call, "the round ends otherwise", then, _ended(end))
        if _object(script.round.outcome) != _object(end.outcome):
            raise Differs(call, "what is handed in differs", script.round.outcome or "", end.outcome or "")
        return True

    async def controls(self, ref: AgentRef) -> Controls:
        """Nobody asks for anything."""
        return Controls()

    def _take(self, done: Results) -> None:
        for ran in done.ran:
            key = f"{done.turn}/{ran.i}"
            refusal = None if key in self._script.made else ran.result
            self._script.watch.checked(self._script.last_call(), key, refusal)
            then = self._script.turn.results[ran.i] if ran.i < len(self._script.turn.results) else None
            if refusal is not None and then is not None and then.error_code is not refusal.error_code:
                was = then.error_code.value if then.error_code else "run"
                raise Differs(self._script.last_call(), f"call {ran.i} ({then.tool}) is refused", was, refusal.content)


class ReplayModel:
    """Implements `workflows.ports.Model`."""

    def __init__(self, script: Script) -> None:
        self._script = script

    async def call(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """The recorded reply, or the recorded fault."""
        k = int(request.coordinate.rpartition("/m")[2])
        attempt = next((a for a in self._script.turn.attempts if a.k == k), None)
        if attempt is not None and attempt.reply is not None:
            self._script.watch.asked(request)
            return attempt.reply
        fault = self._fault(attempt)
        if fault is None:
            raise RecordingEnds
        self._script.watch.asked(request)
        raise LonghaulError(fault.code, fault.detail)

    def estimate_cost_micro(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Nothing is paid."""
        return 0

    def _fault(self, attempt: Attempt | None) -> ErrorInfo | None:
        if attempt is not None and attempt.bad is not None:
            return ErrorInfo(code=attempt.bad.code, detail=attempt.bad.detail)
        error = self._script.round.error
        return error if error is not None and self._script.at_the_end and error.code in ENGINE_ENDS else None


class ReplayBench:
    """Implements `workflows.ports.Workbench`: every call that may be made has its recorded result."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def known(self, call_key: str) -> ToolResult:
        """The recorded result of a call that is not refused."""
        turn, _, i = call_key.rpartition("/c")
        self._script.made.add(f"{turn.rpartition('/')[2]}/{i}")
        results = self._script.turn.results
        result = results[int(i)] if int(i) < len(results) else None
        if result is None:
            raise RecordingEnds
        return result

    def context(self, held: Held, brief: Brief, call_key: str) -> CallContext:
        """Never asked for: results are known."""
        raise NotImplementedError


class Nowhere:
    """A runner and a live link that nobody is at, and no sandbox that could be lost."""

    async def keep(self, held: Held, sandbox_id: str, owner: Owner, turn: int, at: datetime) -> Kept:
        """Nothing is kept."""
        return "failed"

    async def restore(self, held: Held, lost: str, why: ErrorInfo) -> None:
        """Nothing is lost."""

    async def announce(self, sandbox_id: str, owner: Owner) -> None:
        """Nothing runs."""

    async def delta(self, tenant_id: str, delta: Delta) -> None:
        """Nobody reads."""

    async def poke(self) -> None:
        """Nobody listens."""

    async def control(self, tenant_id: str, task_id: str) -> None:
        """Nobody listens."""

    async def on_control(self, tenant_id: str, task_id: str, wake: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Never wakes."""

        async def stop() -> None:
            return None

        return stop


class StillClock:
    """Time stands; what a prompt says of it is recorded."""

    def now(self) -> datetime:
        """Always the same."""
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        """Nothing takes time."""
        return 0.0


class _Coded(Protocol):
    @property
    def code(self) -> ErrorCode:
        """Which."""
        ...

    @property
    def detail(self) -> str:
        """Why."""
        ...


def _code(fault: _Coded | None) -> ErrorCode | None:
    return fault.code if fault else None


def _judged(fault: _Coded | None) -> str:
    return f"unusable, {fault.code.value}: {fault.detail}" if fault else "usable"


def _follows(failed: ErrorInfo | None) -> str:
    return f"the turn is given up: {failed.code.value}" if failed else "it is asked again"


def _ended(end: RoundEnd) -> str:
    return end.reason.value + (f" ({end.error.code.value}: {end.error.detail})" if end.error else "")


def _object(outcome: str | None) -> object:
    return json.loads(outcome) if outcome is not None else None
