"""The turn loop: one agent, one attempt, turn after turn until something has to be waited for or the round is over.

A turn is a model call and its tool calls, made durable by two transactions of the ledger (T1 before the call, T2
after it). The loop keeps nothing that the ledger does not have, except results and a paid reply on their way there; so
what to do next follows from the last turn alone, whether this attempt wrote it or found it:

    no turn open       -> `_begin`  T1: keep the last results, open the next turn
    open, no reply     -> `_ask`    render, ask the model, T2
    open, with a reply -> `_call`   run the calls that have no result (an exec that already runs is attached to)
"""

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TypeVar

from agents.context.render import Prompts
from agents.contracts.base import excerpt
from agents.contracts.errors import ErrorCode, ErrorInfo, FaultClass, Fenced, LonghaulError
from agents.contracts.ids import Role
from agents.contracts.model import BadReply, ModelReply
from agents.contracts.run import AgentRef, BurstEnd, BurstReason, Verdict
from agents.contracts.tool import ToolCall, ToolResult
from agents.contracts.trajectory import Attempt, Turn, TurnInputs
from agents.policy.budget import MIN_REPLY_TOKENS, reserve_estimate
from agents.policy.retry import Ask as HowToAsk
from agents.policy.retry import next_attempt
from agents.policy.stuck import FARTHEST, verdict
from agents.tools.ask import Ask, came_of
from agents.tools.control import postponed
from agents.tools.give_up import GiveUp
from agents.tools.parse import CheckedCall
from agents.tools.registry import STANDARD, Toolbox
from agents.tools.submit_review import SubmitReview
from workflows.asking import Asking, request
from workflows.calling import DRAIN_GRACE_S, Calling, Rules
from workflows.clock import Clock
from workflows.gates import unrepeatable
from workflows.interrupts import Interrupted, Interrupts
from workflows.keeping import EVERY_TEN, Cadence, Keeping
from workflows.persist import PASSING, persist
from workflows.ports import Announced, Ledger, Live, Model, Safekeeping, Workbench
from workflows.records import (
    NO_ROWS,
    NOTHING,
    Answer,
    Begun,
    CallIntent,
    CallRows,
    Held,
    Intent,
    Opened,
    Outgoing,
    Ran,
    Results,
    RoundEnd,
    Start,
    Waiting,
)
from workflows.trajectory import Kept, Trajectory
from workflows.wording import doing
from workflows.workspaces import GONE, UNFINISHED

T = TypeVar("T")

FAILED_TURNS = 3
"""A round ends when so many turns in a row were given up."""

COMES_BACK = frozenset({*PASSING, ErrorCode.SANDBOX_UNAVAILABLE, ErrorCode.DISK_FULL})
"""What may keep a lost sandbox from being made again for a while."""

ENDS_THE_ROUND = frozenset({ErrorCode.ENGINE_REFUSED, ErrorCode.REPLAY_MISMATCH, ErrorCode.REPLAY_NOT_RECORDED})


@dataclass(frozen=True)
class Ports:
    """What a burst reaches the world through."""

    ledger: Ledger
    model: Model
    runner: Announced
    live: Live
    bench: Workbench
    clock: Clock
    safe: Safekeeping


@dataclass(frozen=True)
class BurstRules:
    """How long a burst runs and how patient it is; seconds."""

    max_tokens: int = 4_096
    turns: int = 50
    own_s: float = 60.0
    store_patience_s: float = 60.0
    engine_patience_s: float = 5.0
    approval_s: float = 259_200.0
    blocked_pause_s: float = 0.5
    snapshots: Cadence = EVERY_TEN


class Bursts:
    """Runs bursts. Build one per worker."""

    def __init__(
        self, ports: Ports, prompts: Prompts, rules: BurstRules = BurstRules(), toolbox: Toolbox = STANDARD
    ) -> None:
        self._ports = ports
        self._prompts = prompts
        self._rules = rules
        self._toolbox = toolbox
        self._kept = Kept()

    async def run(self, ref: AgentRef, drain: "Future[None]") -> BurstEnd:
        """One attempt at one burst.

        Raises:
            LonghaulError: `Fenced` where a newer attempt took over; an infrastructure fault that lasted.
        """
        ports, patience = self._ports, self._rules.store_patience_s
        opened = await persist(lambda: ports.ledger.open(ref), ports.clock, patience)
        if opened.end is not None:
            return opened.end
        held = Held(ref, opened.fence)
        trajectory = self._kept.take(ref.place, opened.brief) or Trajectory(self._prompts, opened.brief)
        burst = Burst(ports, self._rules, held, opened, trajectory, self._toolbox)
        async with Interrupts(ports.ledger, ports.live, ref, drain) as interrupts:
            end = await burst.run(interrupts)
        if not end.reason.final and burst.stored and not _afresh(ref.place.role):
            self._kept.put(ref.place, burst.trajectory)
        return end


class Burst:
    """One attempt's way through the turns."""

    def __init__(
        self, ports: Ports, rules: BurstRules, held: Held, opened: Opened, trajectory: Trajectory, toolbox: Toolbox
    ) -> None:
        self._ports = ports
        self._rules = rules
        self._held = held
        self._brief = opened.brief
        self._role = held.place.role
        self.trajectory = trajectory
        failed_checks = any(not check.passed for check in opened.brief.checks)
        self._call_rules = Rules(toolbox, failed_checks, rules.approval_s)
        self._keeping = Keeping(ports.safe, held, opened, toolbox, rules.snapshots)
        self._lost = opened.lost
        self._open: Turn | None = None
        self._asked = 0
        """The k whose intent and reservation are stored under this fence."""
        self._request_sha256: str | None = None
        """The digest of the last request."""
        self._found: Turn | None = None
        """The turn that an earlier attempt left open; its calls may have been begun."""
        self._pending = NOTHING
        self._waiting = opened.waiting
        self._control_seq = 0
        self._count = 0
        self._total = opened.turns
        self._away_s = 0.0
        """Time spent waiting for tools, which is not the burst's own."""

    @property
    def stored(self) -> bool:
        """Whether the ledger has every result, so that the complete turns are as it has them."""
        return self._pending is NOTHING

    async def run(self, interrupts: Interrupts) -> BurstEnd:
        """Until the burst ends."""
        self._interrupts = interrupts
        self._asking = Asking(self._ports.model, self._ports.live, self._ports.clock, interrupts)
        self._calling = Calling(self._ports.bench, self._held, self._brief, interrupts, self._call_rules)
        self._started = self._ports.clock.monotonic()
        try:
            if self._lost:
                return await self._restore(UNFINISHED)
            return await self._go_on()
        except Interrupted as stop:
            return await self._interrupted(stop.reason)
        except LonghaulError as fault:
            if fault.code is ErrorCode.STORAGE_FULL:
                return await self._wait_for("storage", BurstReason.STORAGE_FULL, fault)
            if fault.code not in GONE:
                raise
            return await self._restore(fault.info)
        finally:
            await self._keeping.close()

    async def _go_on(self) -> BurstEnd:
        await self._announce()
        await self._load()
        while True:
            end = await self._advance()
            if end is not None:
                return end

    async def _restore(self, why: ErrorInfo) -> BurstEnd:
        """The sandbox is lost: have it made again. The next burst works in that one, and its agent is told."""
        sandbox_id = self._brief.sandbox_id
        assert sandbox_id is not None  # without one nothing could be lost
        await self._keep()
        try:
            await self._interrupts.race(self._ports.safe.restore(self._held, sandbox_id, why), DRAIN_GRACE_S)
        except Interrupted as stop:
            return await self._interrupted(stop.reason)
        except Fenced:
            raise
        except LonghaulError as fault:
            if fault.code in COMES_BACK:
                return await self._wait_for("sandbox", BurstReason.SANDBOX_UNAVAILABLE, fault)
            if fault.code.rule.retryable:
                raise
            error = why if fault.code in GONE else fault.info
            return await self._end(RoundEnd(BurstReason.SANDBOX_LOST, error=error))
        return await self._leave(BurstReason.LIMIT)

    async def _announce(self) -> None:
        """Lock older attempts out of the sandbox before the ledger is read, so that it cannot change behind us."""
        if self._brief.sandbox_id is not None:
            owner, sandbox = self._calling.owner, self._brief.sandbox_id
            await self._persist(lambda: self._ports.runner.announce(sandbox, owner))

    async def _load(self) -> None:
        """Read what the trajectory does not have yet. Where that and the agent's count of turns do not agree, all."""
        kept = self.trajectory
        turns = await self._read(kept.last)
        if kept.turns and len(kept.turns) + len(turns) != self._total:
            self.trajectory = kept.emptied()
            turns = await self._read(None)
        if turns and not turns[-1].complete:
            self._open = turns.pop()
            self._found = self._open
        for turn in turns:
            self.trajectory.push(turn)
        self._keeping.seen(self.trajectory.turns)

    async def _read(self, after: tuple[int, int] | None) -> list[Turn]:
        return await self._persist(lambda: self._ports.ledger.load(self._held, _afresh(self._role), after))

    async def _advance(self) -> BurstEnd | None:
        if self._open is None:
            return await self._begin()
        if self._open.reply is None:
            return await self._ask(self._open)
        return await self._call(self._open, self._open.reply)

    # --- T1 -----------------------------------------------------------------------------------------------------------
    async def _begin(self) -> BurstEnd | None:
        """Open the next turn, unless the burst or the round ends here."""
        self._interrupts.check()
        self._ports.ledger.check_room()
        if self._count >= self._rules.turns or self._own_s() >= self._rules.own_s:
            return await self._leave(BurstReason.LIMIT)
        useless = self._useless()
        if useless is not None:
            return await self._end(useless)
        last = self.trajectory.turns[-1] if self.trajectory.turns else None
        number = last.turn + 1 if last and last.round == self._held.ref.round else 1
        begun = await self._intend(number, 1, opens=True)
        if begun is not None and begun.inputs is not None:
            self._open = Turn(round=self._held.ref.round, turn=number, inputs=begun.inputs)
            self._total += 1
        return begun.end if begun else None

    def _useless(self) -> RoundEnd | None:
        """Whether going on makes no sense: too many turns without a reply, or going round in circles."""
        recent = self.trajectory.turns[-FARTHEST:]
        failed = [turn.failed for turn in recent[-FAILED_TURNS:] if turn.failed and turn.round == self._held.ref.round]
        if len(failed) == FAILED_TURNS:
            return RoundEnd(BurstReason.FAILED, error=failed[-1])
        if verdict(recent) == "stop":
            detail = "the last turns repeated themselves, even after the model had been told so"
            return RoundEnd(BurstReason.NO_PROGRESS, error=ErrorInfo(code=ErrorCode.NO_PROGRESS, detail=detail))
        return None

    async def _intend(self, turn: int, k: int, *, opens: bool) -> Begun | None:
        """Store the intent of a call. None where it has to wait for other calls' reservations: nothing is asked yet."""
        intent = self._intent(turn, k, opens=opens)
        done, key = (self._pending if opens else NOTHING), self._held.next()
        begun = await self._persist(lambda: self._ports.ledger.begin(self._held, key, done, intent))
        await self._hurry(done)
        if opens:
            self._pending = NOTHING
        if begun.end is None and begun.inputs is None:
            await self._interrupts.pause(self._rules.blocked_pause_s)
            self._interrupts.check()
            return None
        self._asked = k
        self._control_seq = begun.inputs.control_seq if begun.inputs else self._control_seq
        return begun

    def _intent(self, turn: int, k: int, *, opens: bool) -> Intent:
        attempts = self._open.attempts if self._open and not opens else ()
        how = self._how(attempts)
        before = next_attempt(self._brief, self._role, _bad(attempts)[:-1]) if _bad(attempts) else how
        bad = attempts[k - 2].bad if k > 1 else None
        fell_back = (
            (before.tier, bad.code) if isinstance(before, HowToAsk) and bad and before.tier != how.tier else None
        )
        prompt = self._prompt_tokens(turn)
        return Intent(
            turn=turn,
            k=k,
            tier=how.tier,
            tokens=reserve_estimate(prompt, self._rules.max_tokens),
            least_tokens=prompt + min(MIN_REPLY_TOKENS, self._rules.max_tokens),
            cost_micro=self._ports.model.estimate_cost_micro(prompt, self._rules.max_tokens),
            opens=opens,
            fell_back=fell_back,
        )

    def _how(self, attempts: Sequence[Attempt]) -> HowToAsk:
        how = next_attempt(self._brief, self._role, _bad(attempts))
        if isinstance(how, HowToAsk):
            return how
        raise LonghaulError(how.code, how.detail)

    def _prompt_tokens(self, turn: int) -> int:
        """About how long the next prompt is."""
        inputs = TurnInputs(at=self._ports.clock.now(), turns_left=self._brief.limits.turns)
        open_turn = self._open or Turn(round=self._held.ref.round, turn=turn, inputs=inputs)
        return self.trajectory.prompt_tokens(open_turn)

    # --- the model, T2 ------------------------------------------------------------------------------------------------
    async def _ask(self, turn: Turn) -> BurstEnd | None:
        """Ask the model once, and store what came of it."""
        bad = _bad(turn.attempts)
        k = len(bad) + 1
        if bad and isinstance(how := next_attempt(self._brief, self._role, bad), ErrorInfo):
            return await self._answered(turn, Answer(turn.turn, k - 1, failed=how))
        if self._asked != k:
            begun = await self._intend(turn.turn, k, opens=False)
            return begun.end if begun else None
        asked = turn.model_copy(update={"attempts": bad})
        rendered = self.trajectory.open(asked)
        ask = request(self._held, self._brief, asked, rendered, self._how(bad), self._rules.max_tokens)
        self._request_sha256 = ask.request_sha256
        self._keeping.start(self._calling.owner, turn)
        try:
            reply = await self._asking.reply(ask, self._rules.engine_patience_s)
        except LonghaulError as fault:
            return await self._no_reply(turn, k, fault)
        return await self._judge(turn, k, reply)

    async def _no_reply(self, turn: Turn, k: int, fault: LonghaulError) -> BurstEnd | None:
        if fault.code is ErrorCode.ENGINE_UNAVAILABLE:
            return await self._wait_for("engine", BurstReason.ENGINE_UNAVAILABLE, fault)
        if fault.code in ENDS_THE_ROUND:
            return await self._end(RoundEnd(BurstReason.FAILED, error=fault.info, charge_estimate=False))
        if fault.code.rule.fault is not FaultClass.MODEL:
            raise fault
        bad = BadReply(code=fault.code, detail=fault.info.detail)
        # a reply that broke off was paid for; a prompt that was refused was not
        paid = fault.code is ErrorCode.REPLY_ABORTED
        return await self._bad(turn, Answer(turn.turn, k, bad=bad, charge_estimate=paid))

    async def _judge(self, turn: Turn, k: int, reply: ModelReply) -> BurstEnd | None:
        checked = self._calling.check(reply)
        if checked.bad is not None:
            return await self._bad(turn, Answer(turn.turn, k, reply=reply, bad=checked.bad))
        calls = tuple(CallIntent(c.index, c.call.name, excerpt(c.call.arguments)) for c in checked.calls)
        asks = self._calling.gates.questions(checked.calls)
        answer = Answer(turn.turn, k, reply=reply, calls=calls, asks=asks, activity=doing(reply.tool_calls))
        return await self._answered(turn, answer)

    async def _bad(self, turn: Turn, answer: Answer) -> BurstEnd | None:
        """Something unusable: ask again with something changed, or give the turn up."""
        attempts = (*_bad(turn.attempts), Attempt(k=answer.k, reply=answer.reply, bad=answer.bad))
        how = next_attempt(self._brief, self._role, attempts)
        return await self._answered(turn, replace(answer, failed=how if isinstance(how, ErrorInfo) else None))

    async def _answered(self, turn: Turn, answer: Answer) -> BurstEnd | None:
        """T2; from here on the reply cannot be lost."""
        digest, key = self._request_sha256, self._held.next()
        answer = replace(answer, resumed=self._waiting, request_sha256=digest)
        controls = await self._persist(lambda: self._ports.ledger.answer(self._held, key, answer))
        self._waiting, self._control_seq = False, controls.control_seq
        if answer.reply is not None or answer.bad is not None:
            attempt = Attempt(k=answer.k, reply=answer.reply, bad=answer.bad, request_sha256=digest)
            turn = turn.model_copy(update={"attempts": (*_bad(turn.attempts), attempt)})
        empty = (None,) * len(answer.calls)
        self._open = turn.model_copy(update={"failed": answer.failed, "results": empty})
        if answer.failed is not None:
            self._close()
        if controls.cancel_requested:
            self._interrupts.cancel()
            raise Interrupted(BurstReason.CANCELLED)
        return None

    # --- the calls ----------------------------------------------------------------------------------------------------
    async def _call(self, turn: Turn, reply: ModelReply) -> BurstEnd | None:
        """Run what has no result yet; a control call ends the round, and one that a person has to allow the burst."""
        checked = self._calling.check(reply)
        lone = checked.calls[0]
        await self._keeping.settle()
        if lone.control:
            return await self._control(turn, lone)
        begun = self._ports.clock.monotonic()
        try:
            rows = await self._rows(turn, checked.calls)
            asks = await self._calling.run(turn, checked.calls, rows, self._take, self._begins)
        finally:
            self._away_s += self._ports.clock.monotonic() - begun
        if asks is not None:
            return await self._leave(BurstReason.NEEDS_APPROVAL, Waiting("approval", turn=turn.turn, asks=asks))
        self._close()
        return None

    async def _rows(self, turn: Turn, calls: Sequence[CheckedCall]) -> CallRows:
        if not self._calling.gates.depend_on_rows(calls, found=turn is self._found):
            return NO_ROWS
        return await self._persist(lambda: self._ports.ledger.call_rows(self._held, turn.turn))

    async def _begins(self, call: CheckedCall) -> None:
        """A call is about to run: stored first where it could not be repeated, or where the agent was seen waiting."""
        if not unrepeatable(call):
            return await self._resume((call.call,))
        return await self._start(call.index, (call.call,))

    async def _resume(self, calls: tuple[ToolCall, ...] = ()) -> None:
        if self._waiting:
            await self._start(None, calls)

    async def _start(self, begins: int | None, calls: tuple[ToolCall, ...]) -> None:
        assert self._open is not None  # calls run only while their turn is open
        start, key = Start(self._open.turn, doing(calls), begins), self._held.next()
        await self._persist(lambda: self._ports.ledger.start(self._held, key, start))
        self._waiting = False

    async def _take(self, ran: Ran) -> None:
        """A result is there: it goes in with the next T1 where it is its reply's only one, else it is stored now."""
        await self._resume()
        turn = self._open
        assert turn is not None  # calls run only while their turn is open
        results = tuple(ran.result if i == ran.i else result for i, result in enumerate(turn.results))
        self._open = turn.model_copy(update={"results": results})
        self._pending = Results(turn.turn, (ran,), self._open.complete, len(results))
        if len(results) > 1:
            await self._keep()

    async def _control(self, turn: Turn, call: CheckedCall) -> BurstEnd | None:
        if isinstance(call.arguments, Ask):
            return await self._question(turn, call, call.arguments)
        ran = await self._calling.hand_in(turn, call, self.trajectory.turns)
        if ran.result.ok:
            end = _end_by(call)
            done, key = Results(turn.turn, (ran,), True, 1), self._held.next()
            if await self._persist(lambda: self._ports.ledger.end(self._held, key, done, end)):
                return BurstEnd(reason=end.reason, turns=self._total, verdict=_verdict(call))
            ran = replace(ran, result=postponed(call.call.name))
        await self._take(ran)
        self._close()
        return None

    async def _question(self, turn: Turn, call: CheckedCall, ask: Ask) -> BurstEnd | None:
        """Ask and leave. The burst that comes with the answer (or another message) finds the turn open and goes on."""
        asked = await self._persist(lambda: self._calling.question(turn, call, ask))
        result = asked if isinstance(asked, ToolResult) else await self._heard(asked)
        if result is None:
            return BurstEnd(reason=BurstReason.ASKED, turns=self._total, control_seq=self._control_seq)
        await self._take(Ran(call.index, result))
        self._close()
        return None

    async def _heard(self, asked: Outgoing) -> ToolResult | None:
        """What has come on a question, which is sent if it was not; None: the agent waits."""
        key = self._held.next()
        heard = await self._persist(lambda: self._ports.ledger.ask(self._held, key, asked))
        await self._ports.live.poke()
        return None if heard == "nothing" else came_of(heard)

    def _close(self) -> None:
        """The turn has everything: it becomes part of what every later prompt begins with."""
        if self._open is not None:
            self.trajectory.push(self._open)
            self._keeping.seen((self._open,))
            self._count += 1
        self._open, self._asked = None, 0

    # --- ends ---------------------------------------------------------------------------------------------------------
    async def _interrupted(self, reason: BurstReason) -> BurstEnd:
        if reason is BurstReason.CANCELLED:
            return await self._end(RoundEnd(BurstReason.CANCELLED))
        return await self._leave(reason)

    async def _end(self, end: RoundEnd) -> BurstEnd:
        """The round is over for a reason that no message changes."""
        done, key = self._pending, self._held.next()
        await self._persist(lambda: self._ports.ledger.end(self._held, key, done, end))
        return BurstEnd(reason=end.reason, turns=self._total, control_seq=self._control_seq, error=end.error)

    async def _leave(
        self,
        reason: BurstReason,
        waiting: Waiting | None = None,
        *,
        retry_after_s: float | None = None,
        error: ErrorInfo | None = None,
    ) -> BurstEnd:
        """The burst is over, the round is not."""
        await self._keep(waiting)
        return BurstEnd(
            reason=reason,
            turns=self._total,
            control_seq=self._control_seq,
            retry_after_s=retry_after_s,
            error=error,
        )

    async def _wait_for(self, what: str, reason: BurstReason, fault: LonghaulError) -> BurstEnd:
        waiting, again = Waiting(what, fault.retry_after_s, excerpt(fault.detail)), fault.retry_after_s
        return await self._leave(reason, waiting, retry_after_s=again, error=fault.info)

    async def _keep(self, waiting: Waiting | None = None) -> None:
        if self._pending is NOTHING and waiting is None:
            return
        done, key = self._pending, self._held.next()
        await self._persist(lambda: self._ports.ledger.keep(self._held, key, done, waiting))
        await self._hurry(done)
        self._pending = NOTHING

    async def _hurry(self, done: Results) -> None:
        """Messages went out: have them carried at once."""
        if done.messages:
            await self._ports.live.poke()

    def _own_s(self) -> float:
        return self._ports.clock.monotonic() - self._started - self._away_s

    async def _persist(self, call: Callable[[], Awaitable[T]]) -> T:
        return await persist(call, self._ports.clock, self._rules.store_patience_s)


def _bad(attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """The attempts that were answered with something unusable; one without an answer is asked again as it was."""
    return tuple(attempt for attempt in attempts if attempt.bad is not None)


def _afresh(role: Role) -> bool:
    """Whether each round begins without the last one's turns: a review starts with what is there now."""
    return role is Role.REVIEWER


def _end_by(call: CheckedCall) -> RoundEnd:
    assert call.arguments is not None  # a sound control call has them
    reason = BurstReason.GAVE_UP if isinstance(call.arguments, GiveUp) else BurstReason.FINISHED
    return RoundEnd(reason, outcome=call.arguments.model_dump_json(), unless_mail=True)


def _verdict(call: CheckedCall) -> Verdict | None:
    return call.arguments.verdict if isinstance(call.arguments, SubmitReview) else None
