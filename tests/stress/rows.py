"""What the database says of a run."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import case, func, select

from services.store.database import Database
from services.store.queue import HOLDERS
from services.store.tables import agents, events, sandboxes, tasks
from tests.stress.judge import Ran


@dataclass(frozen=True)
class Now:
    """Of the tasks of a run: how many have ended, and how many have a place."""

    done: int
    running: int


@dataclass(frozen=True)
class Outcome:
    """Of an ended run: the tasks that have ended, in the order of their places; how the others and the failed stand;
    tasks whose events have a gap; events that were not published; sandboxes that were left; agents that had more than
    one burst, which these short ones have only where a worker was lost or its heartbeats were late."""

    ran: list[Ran]
    completed: int
    others: dict[str, int]
    gaps: int
    unpublished: int
    sandboxes: int
    again: int


async def now(db: Database, ids: Sequence[str]) -> Now:
    """How far it is."""
    done = select(func.count()).where(tasks.c.id.in_(ids), tasks.c.ended_at.is_not(None))
    async with db.begin() as conn:
        running = len((await conn.execute(HOLDERS)).all())
        return Now((await conn.execute(done)).scalar_one(), running)


async def outcome(db: Database, ids: Sequence[str]) -> Outcome:
    """What came of it."""
    mine = tasks.c.id.in_(ids)
    stands = func.coalesce(tasks.c.stop_reason, tasks.c.status)
    states = select(stands, func.count()).where(mine).group_by(stands)
    numbers = select(tasks.c.id).join(events, events.c.task_id == tasks.c.id).where(mine).group_by(tasks.c.id)
    complete = (func.count() == tasks.c.last_seq) & (func.max(events.c.seq) == tasks.c.last_seq)
    whole = numbers.group_by(tasks.c.last_seq).having(complete)
    waiting = select(func.count()).where(events.c.task_id.in_(ids), events.c.published_at.is_(None))
    left = select(func.count()).where(sandboxes.c.task_id.in_(ids), sandboxes.c.ended_at.is_(None))
    bursts = agents.c.fence - case((tasks.c.ended_at.is_(None), 0), else_=1)  # the end of a task raises it too
    again = select(func.count()).join_from(agents, tasks, agents.c.task_id == tasks.c.id).where(mine, bursts > 1)
    async with db.begin() as conn:
        found = {str(name): int(count) for name, count in await conn.execute(states)}
        return Outcome(
            ran=await _ran(db, ids),
            completed=found.pop("completed", 0),
            others=found,
            gaps=len(ids) - len((await conn.execute(whole)).all()),
            unpublished=(await conn.execute(waiting)).scalar_one(),
            sandboxes=(await conn.execute(left)).scalar_one(),
            again=(await conn.execute(again)).scalar_one(),
        )


async def _ran(db: Database, ids: Sequence[str]) -> list[Ran]:
    columns = (tasks.c.tenant_id, tasks.c.created_at, tasks.c.admitted_at, tasks.c.ended_at)
    query = select(*columns).where(tasks.c.id.in_(ids), tasks.c.ended_at.is_not(None), tasks.c.admitted_at.is_not(None))
    async with db.begin() as conn:
        return [Ran(*row) for row in await conn.execute(query.order_by(tasks.c.admitted_at))]
