"""One ledger transaction as it runs: the claim at its start, its statements, its events."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any

from asyncpg import PostgresError
from sqlalchemy import Row, TextClause, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.errors import ErrorCode, Fenced, LonghaulError
from agents.contracts.event import AgentWaiting, TaskStatusChanged
from agents.contracts.ids import Role
from agents.contracts.message import PERSON, Mail
from agents.contracts.task import TaskStatus
from services.store import ledger_sql
from services.store.database import Database
from services.store.ledger_events import Packed, Told, of_end, of_results, rows
from services.store.mail import send
from services.store.mail_sql import READ
from services.store.spill import Body, json_text
from services.store.tables import agents, messages
from workflows.records import Held, Intent, RoundEnd, Waiting

_RETRY_STATES = frozenset({"40001", "40P01", "55P03"})
"""Serialization failure, deadlock, lock timeout: the same transaction may well pass the next time."""

STATUS_OF = {
    Role.PLANNER: TaskStatus.PLANNING,
    Role.EXECUTOR: TaskStatus.RUNNING,
    Role.REVIEWER: TaskStatus.REVIEWING,
}

AGENT = "agent"
"""What an agent waits for that has asked another one: its task as a whole does not wait."""

MAIL_WAITS = (PERSON, AGENT)
"""What an agent waits for that comes as a message."""

_WHAT = {"approval": "a person's decision", PERSON: "a person", AGENT: "another agent"}

_WAITABLE = (TaskStatus.PLANNING, TaskStatus.RUNNING, TaskStatus.REVIEWING)


@asynccontextmanager
async def retryable(db: Database) -> AsyncIterator[AsyncConnection]:
    """A transaction whose deadlock is a fault that passes: ``STORE_UNAVAILABLE``."""
    with passing():
        async with db.begin() as conn:
            yield conn


@contextmanager
def passing() -> Iterator[None]:
    """A deadlock inside is a fault that passes."""
    try:
        yield
    except (DBAPIError, PostgresError) as error:
        if getattr(getattr(error, "orig", error), "sqlstate", None) not in _RETRY_STATES:
            raise
        raise LonghaulError(ErrorCode.STORE_UNAVAILABLE, "two transactions met; try again") from error


class Bound:
    """What every statement of one attempt's transaction takes."""

    def __init__(self, held: Held, now: datetime) -> None:
        self.held = held
        self.now = now
        place = held.place
        self._binds: dict[str, Any] = {
            "tenant_id": held.ref.tenant_id,
            "task_id": place.task_id,
            "agent_id": held.agent_id,
            "fence": held.fence,
            "round": held.ref.round,
            "step": place.step,
            "now": now,
        }

    def model_key(self, intent: Intent) -> str:
        """The logical key of an intent's call."""
        return self.held.model_key(intent.turn, intent.k)

    def results(self, packed: Packed) -> dict[str, Any]:
        """What every statement that keeps results takes."""
        done = packed.done
        return {
            "results": packed.rows,
            "done_turn": done.turn,
            "artifacts": packed.artifacts,
            "closes": done.turn if done.completes else None,
        }

    def bound(self, statement: TextClause, binds: dict[str, Any]) -> dict[str, Any]:
        """The parameters of a statement: those of every one, and `binds`."""
        known = self._binds | binds
        return {name: known[name] for name in ledger_sql.names(statement)}


class Step(Bound):
    """A transaction of one attempt. `claim` comes first."""

    def __init__(self, conn: AsyncConnection, held: Held, now: datetime) -> None:
        super().__init__(held, now)
        self.conn = conn
        self.mail_read = 0
        self.turns = 0
        self.waiting_for: str | None = None

    async def claim(self, key: str) -> Row[Any]:
        """Lock the agent and take the key; `fresh` says whether the key was new.

        Raises:
            Fenced: a newer attempt holds the agent.
        """
        row = await self.one_or_none(ledger_sql.CLAIM, key=key)
        if row is None:
            raise Fenced
        self.mail_read, self.turns, self.waiting_for = row.mail_read, row.turns, row.waiting_for
        return row

    async def unread(self, agent: Row[Any]) -> tuple[Mail, ...]:
        """Messages that have not been read yet, in the order of their numbers."""
        if agent.mail_sent <= agent.mail_read:
            return ()
        query = (
            select(messages)
            .where(
                messages.c.tenant_id == self.held.ref.tenant_id,
                messages.c.agent_id == self.held.agent_id,
                messages.c.seq > agent.mail_read,
            )
            .order_by(messages.c.seq)
        )
        return tuple(Mail.model_validate(dict(row)) for row in (await self.conn.execute(query)).mappings())

    async def one(self, statement: TextClause, **binds: Any) -> Row[Any]:
        """Run a statement that answers one row."""
        return (await self.conn.execute(statement, self.bound(statement, binds))).one()

    async def one_or_none(self, statement: TextClause, **binds: Any) -> Row[Any] | None:
        """Run a statement that answers a row or none."""
        return (await self.conn.execute(statement, self.bound(statement, binds))).one_or_none()

    async def write(self, statement: TextClause, told: Sequence[Told], last_seq: int, **binds: Any) -> None:
        """Run a writing statement; its events get the numbers after `last_seq`."""
        binds |= {"events": rows(told), "first": last_seq + 1, "count": len(told)}
        await self.conn.execute(statement, self.bound(statement, binds))

    async def tell(self, told: Sequence[Told]) -> None:
        """Events and nothing else."""
        if told:
            task = await self.one(ledger_sql.NUMBER, count=len(told))
            await self.write(ledger_sql.TELL, told, task.last_seq - len(told))

    async def send(self, packed: Packed) -> None:
        """Write the messages that go out with results; before the task is locked."""
        await send(self.conn, self.held.ref, packed.done.messages, self.now)

    async def heard(self, mail: Sequence[Mail], task: Row[Any]) -> list[Told]:
        """Messages enter the agent's context: note it, and that a wait for them is over. The task is locked."""
        if not mail:
            return []
        await self.conn.execute(READ, self.bound(READ, {"mail_read": self.mail_read}))
        if self.waiting_for not in MAIL_WAITS:
            return []
        status = STATUS_OF[self.held.place.role]
        resumed = await self.one_or_none(ledger_sql.RESUME, status=status.value)
        return [Told(TaskStatusChanged(status=status), None)] if resumed else []

    async def keep(self, packed: Packed) -> None:
        """Keep results."""
        await self.send(packed)
        told = list(of_results(self.held, packed.done))
        if not told:
            return
        task = await self.one(ledger_sql.NUMBER, count=len(told))
        await self.write(ledger_sql.KEEP, told, task.last_seq - len(told), **self.results(packed))

    async def pause(self, packed: Packed, waiting: Waiting, asked: Sequence[Told] = ()) -> None:
        """Keep results, and that the agent waits; told once, not at every try. The task waits where none of its agents
        works."""
        await self.send(packed)
        tenant, agent_id = self.held.ref.tenant_id, self.held.agent_id
        query = select(agents.c.state).where(agents.c.tenant_id == tenant, agents.c.id == agent_id)
        news = (await self.conn.execute(query)).scalar_one() != "waiting"
        task = await self.one(ledger_sql.TASK)
        shown = task.status in _WAITABLE and not (await self.one(ledger_sql.OTHERS)).work
        told = [*of_results(self.held, packed.done), *asked]
        if news:
            what, why, until = waiting.waiting_for, waiting.detail, waiting.retry_after_s
            told.append(Told(AgentWaiting(waiting_for=what, retry_after_s=until, detail=why), None))
        if shown:
            told.append(Told(TaskStatusChanged(status=TaskStatus.WAITING, waiting_for=waiting.waiting_for), None))
        await self.write(
            ledger_sql.PAUSE,
            told,
            task.last_seq,
            **self.results(packed),
            activity=_rest(waiting),
            waiting=shown,
            waiting_for=waiting.waiting_for,
        )

    async def end(
        self,
        packed: Packed,
        end: RoundEnd,
        outcome: Body,
        last_seq: int,
        extra: Sequence[Told],
    ) -> None:
        """End the round."""
        await self.send(packed)
        told = [*of_results(self.held, packed.done), *extra, *of_end(self.held, end)]
        await self.write(
            ledger_sql.END,
            told,
            last_seq,
            **self.results(packed),
            reason=end.reason.value,
            error=json_text(end.error) if end.error else None,
            outcome=outcome.inline,
            outcome_blob=outcome.blob,
            estimate=end.charge_estimate,
            activity=end.reason.value.replace("_", " "),
        )


def _rest(waiting: Waiting) -> str:
    what = _WHAT.get(waiting.waiting_for, f"the {waiting.waiting_for}")
    return f"waiting for {what}" + (f": {waiting.detail}" if waiting.detail else "")
