"""The turn ledger on PostgreSQL: every method one transaction under the fence, found again by its own key."""

from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import Row, select, update

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.event import BudgetExhausted, TaskStatusChanged
from agents.contracts.message import PERSON, Mail
from agents.contracts.run import AgentRef, BurstEnd, BurstReason, Controls
from agents.contracts.task import TaskStatus
from agents.contracts.trajectory import Brief, Turn, TurnInputs
from services.storage import Storage
from services.store import budget, ledger_asks, ledger_fast, ledger_sql, sandbox_rows
from services.store.database import Database
from services.store.ledger_events import (
    Packed,
    Told,
    call_rows,
    of_answer,
    of_begin,
    of_results,
    pack_results,
    sent_event,
)
from services.store.ledger_load import load_turns, round_end
from services.store.ledger_step import AGENT, MAIL_WAITS, STATUS_OF, Bound, Step, retryable
from services.store.mail import deliver, send
from services.store.mail_sql import CAME
from services.store.spill import NO_BODY, Body, Spill, json_text, line
from services.store.tables import agents, messages, rounds, tasks
from workflows.clock import Clock
from workflows.records import (
    NOTHING,
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
from workflows.wording import ASKING


class _UnreadMail(Exception):
    """Rolls a round's end back: something has come in meanwhile."""


class _Asked(NamedTuple):
    """What T1 has found out about its intent."""

    intent: Intent
    mail: tuple[Mail, ...]
    known: bool


class SqlLedger:
    """Implements `workflows.ports.Ledger`."""

    def __init__(self, db: Database, spill: Spill, clock: Clock, storage: Storage) -> None:
        self._db = db
        self._storage = storage
        self._spill = spill
        self._clock = clock

    # --- reading ------------------------------------------------------------------------------------------------------
    async def open(self, ref: AgentRef) -> Opened:
        """Bump the fence, unless the round is over."""
        tenant, agent_id = ref.tenant_id, ref.place.agent_id
        mine = (agents.c.tenant_id == tenant) & (agents.c.id == agent_id)
        async with retryable(self._db) as conn:
            agent = (await conn.execute(select(agents).where(mine).with_for_update(key_share=True))).one_or_none()
            of_round = (rounds.c.tenant_id == tenant) & (rounds.c.agent_id == agent_id) & (rounds.c.round == ref.round)
            row = (await conn.execute(select(rounds).where(of_round))).one_or_none()
            if agent is None or row is None:
                raise LonghaulError(ErrorCode.NOT_FOUND, f"there is no round {ref.round} of {ref.place.path}")
            if row.ended_at is None:
                await conn.execute(update(agents).where(mine).values(fence=agents.c.fence + 1))
        brief = await self._spill.model(tenant, Brief, agent.brief, agent.brief_blob)
        assert brief is not None  # written when the row was made
        end = await round_end(self._spill, tenant, row, agent.turns) if row.ended_at is not None else None
        if end is None and agent.state == "waiting" and agent.waiting_for in MAIL_WAITS:
            heard = agent.mail_sent > agent.mail_read
            end = None if heard else BurstEnd(reason=BurstReason.ASKED, turns=agent.turns)
        waiting = agent.state == "waiting" and agent.waiting_for not in MAIL_WAITS
        found = Opened(fence=agent.fence + 1, brief=brief, turns=agent.turns, waiting=waiting, end=end)
        return found if end is not None or brief.sandbox_id is None else await self._placed(tenant, found, brief)

    async def _placed(self, tenant_id: str, found: Opened, brief: Brief) -> Opened:
        """With the sandbox that stands in the place of the one that the agent began with."""
        async with retryable(self._db) as conn:
            box = await sandbox_rows.current(conn, tenant_id, brief.sandbox_id or "")
            if box is None:
                return found
            kept_at = await sandbox_rows.kept_at(conn, tenant_id, box)
        if box.id != brief.sandbox_id:
            brief = brief.model_copy(update={"sandbox_id": box.id, "sandbox_fence": box.fence})
        return replace(found, brief=brief, lost=not box.ready, kept_at=kept_at)

    async def load(self, held: Held, brief_round_only: bool, after: tuple[int, int] | None = None) -> list[Turn]:
        """The trajectory; large bodies come from S3."""
        first = (held.ref.round, 0) if brief_round_only else (0, 0)
        async with retryable(self._db) as conn:
            return await load_turns(conn, self._spill, held, max(first, after or first))

    async def controls(self, ref: AgentRef) -> Controls:
        """The task's control columns."""
        query = select(tasks.c.control_seq, tasks.c.cancel_requested_at).where(
            tasks.c.tenant_id == ref.tenant_id, tasks.c.id == ref.place.task_id
        )
        async with retryable(self._db) as conn:
            row = (await conn.execute(query)).one()
        return Controls(control_seq=row.control_seq, cancel_requested=row.cancel_requested_at is not None)

    def check_room(self) -> None:
        """Whether the storage has room for another turn."""
        self._storage.check()

    # --- T1 -----------------------------------------------------------------------------------------------------------
    async def begin(self, held: Held, key: str, done: Results, intent: Intent) -> Begun:
        """T1."""
        packed = await pack_results(self._spill, held, done)
        if intent.opens and not done.messages:
            inputs = await ledger_fast.begin(self._db, Bound(held, self._clock.now()), key, packed, intent)
            if inputs is not None:
                return Begun(inputs=inputs)
        return await self._begin_with_care(held, key, packed, intent)

    async def _begin_with_care(self, held: Held, key: str, packed: Packed, intent: Intent) -> Begun:
        """T1 step by step: whatever can be decided is decided here."""
        async with retryable(self._db) as conn:
            step = Step(conn, held, self._clock.now())
            agent = await step.claim(key)
            if not agent.fresh:
                return await self._found(step, intent)
            await step.send(packed)
            mail = await step.unread(agent) if intent.opens else ()
            known = not intent.opens and (await step.one(ledger_sql.LOST, model_key=step.model_key(intent))).known
            task = await step.one(ledger_sql.TASK)
            if task.cancel:
                return await self._over(step, task, packed, RoundEnd(BurstReason.CANCELLED))
            decision = budget.decide(task, intent)
            if isinstance(decision, budget.Exhausted):
                end = RoundEnd(BurstReason.BUDGET, error=decision.error)
                return await self._over(step, task, packed, end, decision.event)
            if decision == "blocked":
                await step.keep(packed)
                return Begun()
            return await self._allowed(step, task, packed, _Asked(intent, mail, known), decision)

    async def _allowed(
        self, step: Step, task: Row[Any], packed: Packed, asked: "_Asked", allowed: budget.Allowed
    ) -> Begun:
        intent, held = asked.intent, step.held
        inputs = TurnInputs(
            at=step.now,
            mail=asked.mail,
            control_seq=task.control_seq,
            tokens_left=allowed.tokens_left,
            cost_left_micro=allowed.cost_left_micro,
            turns_left=allowed.turns_left,
            deadline_at=task.deadline_at,
        )
        body = await self._spill.pack(held.ref.tenant_id, inputs) if intent.opens else NO_BODY
        warned = budget.warning(task)
        told = [*of_results(held, packed.done), *of_begin(held, intent, inputs if intent.opens else None, asked.known)]
        told += await step.heard(asked.mail, task)
        told += [Told(warned, intent.turn)] if warned else []
        await step.write(
            ledger_sql.BEGIN,
            told,
            task.last_seq,
            **step.results(packed),
            model_key=step.model_key(intent),
            turn=intent.turn,
            k=intent.k,
            tier=intent.tier,
            opens=intent.opens,
            inputs=body.inline,
            inputs_blob=body.blob,
            tokens=allowed.tokens,
            cost=allowed.cost_micro,
            mail_read=step.mail_read + len(asked.mail),
            warned=warned is not None,
            heard=bool(asked.mail) and step.waiting_for in MAIL_WAITS,
            activity=ASKING,
        )
        return Begun(inputs=inputs)

    async def _over(
        self, step: Step, task: Row[Any], packed: Packed, end: RoundEnd, exhausted: BudgetExhausted | None = None
    ) -> Begun:
        """T1 finds that the round is over: the same transaction ends it."""
        extra = [Told(exhausted, None)] if exhausted else []
        await step.end(packed, end, NO_BODY, task.last_seq, extra)
        return Begun(end=BurstEnd(reason=end.reason, turns=step.turns, control_seq=task.control_seq, error=end.error))

    async def _found(self, step: Step, intent: Intent) -> Begun:
        """T1 was committed before and its answer lost: read what it decided."""
        held = step.held
        of_round = (rounds.c.agent_id == held.agent_id) & (rounds.c.round == held.ref.round)
        row = (await step.conn.execute(select(rounds).where(of_round, rounds.c.tenant_id == held.ref.tenant_id))).one()
        if row.ended_at is not None:
            return Begun(end=await round_end(self._spill, held.ref.tenant_id, row, step.turns))
        asked = await step.one_or_none(ledger_sql.ASKED, model_key=step.model_key(intent))
        if asked is None:
            return Begun()
        inputs = await self._spill.model(held.ref.tenant_id, TurnInputs, asked.inputs, asked.inputs_blob)
        return Begun(inputs=inputs)

    # --- T2 -----------------------------------------------------------------------------------------------------------
    async def answer(self, held: Held, key: str, answer: Answer) -> Controls:
        """T2."""
        body = await self._spill.pack(held.ref.tenant_id, answer.reply)
        if not (answer.resumed or answer.asks):
            controls = await ledger_fast.answer(self._db, Bound(held, self._clock.now()), key, body, answer)
            if controls is not None:
                return controls
        return await self._answer_with_care(held, key, body, answer)

    async def _answer_with_care(self, held: Held, key: str, body: Body, answer: Answer) -> Controls:
        """T2 step by step: it was stored before, it ends a wait that the task shows, or it asks a person."""
        async with retryable(self._db) as conn:
            step = Step(conn, held, self._clock.now())
            if not (await step.claim(key)).fresh:
                row = await step.one(ledger_sql.TASK)
                return Controls(control_seq=row.control_seq, cancel_requested=row.cancel)
            told = list(of_answer(held, answer))
            resumed = answer.resumed and (await step.one(ledger_sql.TASK)).status == TaskStatus.WAITING
            status = STATUS_OF[held.place.role]
            told += [Told(TaskStatusChanged(status=status), None)] if resumed else []
            told += ledger_asks.of_questions(step, answer.turn, answer.asks)
            task = await step.one(
                ledger_sql.SETTLE,
                model_key=held.model_key(answer.turn, answer.k),
                count=len(told),
                prompt=answer.usage.prompt_tokens,
                cached=answer.usage.cached_tokens,
                completion=answer.usage.completion_tokens,
                cost=answer.usage.cost_micro,
                estimate=answer.charge_estimate,
                resumed=resumed,
                status=status.value,
            )
            await step.write(
                ledger_sql.ANSWER,
                told,
                task.last_seq - len(told),
                model_key=held.model_key(answer.turn, answer.k),
                turn=answer.turn,
                reply=body.inline,
                reply_blob=body.blob,
                bad=json_text(answer.bad) if answer.bad else None,
                request_sha256=answer.request_sha256,
                failed=json_text(answer.failed) if answer.failed else None,
                calls=call_rows(held, answer),
                activity=line(answer.activity or ASKING),
            )
            await ledger_asks.ask(step, answer.turn, answer.asks)
        return Controls(control_seq=task.control_seq, cancel_requested=task.cancel)

    # --- calls, results, ends -----------------------------------------------------------------------------------------
    async def call_rows(self, held: Held, turn: int) -> CallRows:
        """The questions about a turn's calls, and which calls were begun."""
        async with retryable(self._db) as conn:
            return await ledger_asks.call_rows(conn, held, turn)

    async def start(self, held: Held, key: str, start: Start) -> None:
        """The end of a wait, the beginning of a call."""
        async with retryable(self._db) as conn:
            step = Step(conn, held, self._clock.now())
            if not (await step.claim(key)).fresh:
                return
            task, status = await step.one(ledger_sql.TASK), STATUS_OF[held.place.role]
            resumed = task.status == TaskStatus.WAITING
            told = [Told(TaskStatusChanged(status=status), None)] if resumed else []
            await step.write(
                ledger_sql.START,
                told,
                task.last_seq,
                turn=start.turn,
                begins=start.begins,
                activity=line(start.activity),
                resumed=resumed,
                status=status.value,
            )

    async def keep(self, held: Held, key: str, done: Results, waiting: Waiting | None = None) -> None:
        """Results without a next turn, or the start of a wait."""
        packed = await pack_results(self._spill, held, done)
        async with retryable(self._db) as conn:
            step = Step(conn, held, self._clock.now())
            if not (await step.claim(key)).fresh:
                return
            if waiting is None:
                await step.keep(packed)
                return
            turn = waiting.turn
            await step.pause(packed, waiting, ledger_asks.of_questions(step, turn, waiting.asks))
            await ledger_asks.ask(step, turn, waiting.asks)

    async def ask(self, held: Held, key: str, question: Outgoing) -> Heard:
        """The question, and the start of the wait for its answer."""
        async with retryable(self._db) as conn:
            step = Step(conn, held, self._clock.now())
            agent = await step.claim(key)
            new = await send(conn, held.ref, [question], step.now)
            told = [Told(sent_event(held, question), None)] if new else []
            if agent.mail_sent > agent.mail_read:
                await step.tell(told)
                binds = {"tenant_id": held.ref.tenant_id, "message_id": question.id}
                came: Heard | None = (await conn.execute(CAME, binds)).scalar()
                return came or "message"
            if agent.waiting_for is None or new:
                waiting = Waiting(PERSON if question.agent_id is None else AGENT)
                await step.pause(await pack_results(self._spill, held, NOTHING), waiting, told)
            return "nothing"

    async def end(self, held: Held, key: str, done: Results, end: RoundEnd) -> bool:
        """The round's end, unless mail is unread and that matters."""
        packed = await pack_results(self._spill, held, done)
        outcome = await self._spill.pack(held.ref.tenant_id, end.outcome)
        try:
            async with retryable(self._db) as conn:
                step = Step(conn, held, self._clock.now())
                agent = await step.claim(key)
                if agent.fresh:
                    if end.unless_mail and await self._unread(step, agent):
                        raise _UnreadMail
                    task = await step.one(ledger_sql.TASK)
                    await step.end(packed, end, outcome, task.last_seq, [])
        except _UnreadMail:
            async with retryable(self._db) as conn:
                await deliver(conn, held.ref.tenant_id, held.agent_id, self._clock.now())
            return False
        return True

    async def _unread(self, step: Step, agent: Row[Any]) -> bool:
        """Whether a message is there that the agent has not read: in its mailbox, or still on its way."""
        if agent.mail_sent > agent.mail_read:
            return True
        coming = select(messages.c.id).where(
            messages.c.tenant_id == step.held.ref.tenant_id,
            messages.c.agent_id == step.held.agent_id,
            messages.c.delivered_at.is_(None),
        )
        return (await step.conn.execute(coming.limit(1))).first() is not None
