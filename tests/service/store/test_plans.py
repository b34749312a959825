"""What is asked again and again takes an index, however many tasks there are. The real functions are run against a
large database, and every statement they sent is planned once more and looked at."""

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy import TextClause, event, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.run import TaskRef
from agents.contracts.task import TaskStatus
from services.relay.admission import Admission
from services.relay.old_answers import purge
from services.relay.outbox import Outbox
from services.relay.questions import close_questions
from services.relay.reservations import settle_orphans
from services.relay.starts import Reconciler
from services.relay.waking import Waker
from services.settings import Settings
from services.store import events, ledger_fast, task_views
from services.store.database import Database, _compiled
from tests.service.rooms import connect, database, fresh_database
from tests.support.crowd import EVENTS_EACH, fill

TENANT = "crowd7"
QUEUED, ENDED = "crowd_00000199", "crowd_00000007"


class Sent(NamedTuple):
    """A statement and its parameters."""

    sql: str
    parameters: Any


class Large(NamedTuple):
    """The large database."""

    db: Database

    @contextmanager
    def heard(self) -> Iterator[list[Sent]]:
        """What is sent inside the block."""
        sent: list[Sent] = []

        def hear(_conn: Any, _cursor: Any, sql: str, parameters: Any, _context: Any, _many: bool) -> None:
            sent.append(Sent(sql, parameters))

        engine = self.db._engine.sync_engine
        event.listen(engine, "before_cursor_execute", hear)
        try:
            yield sent
        finally:
            event.remove(engine, "before_cursor_execute", hear)

    async def plans(self, sent: list[Sent]) -> list[Any]:
        """How each of them is carried out."""
        found = []
        async with self.db.begin() as conn:
            for statement in sent:
                if statement.sql.lstrip().split()[0].upper() not in ("SELECT", "WITH", "UPDATE", "DELETE"):
                    continue
                explained = await conn.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement.sql}", statement.parameters)
                plan = explained.scalar_one()
                found.append(json.loads(plan) if isinstance(plan, str) else plan)
        return found


class Nobody:
    """In place of Temporal and NATS: there is nothing, and nothing comes."""

    async def start(self, ref: TaskRef, *, even_if_it_ran: bool = False) -> None:
        """Started."""

    async def signal(self, task_id: str, control_seq: int) -> bool:
        return True

    async def running(self, task_id: str) -> bool:
        return True

    async def wake(self, ref: Any, control_seq: int) -> None:
        """Woken."""

    async def control(self, tenant_id: str, task_id: str) -> None:
        """Told."""

    async def wait_connected(self, timeout_s: float) -> bool:
        return True

    async def publish_durably(self, *_: Any) -> None:
        """Kept."""


Read = Callable[[AsyncConnection], Awaitable[Any]]


def reads() -> dict[str, Read]:
    """What people and consoles ask."""
    view, page, read = task_views.view, task_views.page, events.read

    def of_task(task_id: str, **more: Any) -> Read:
        return lambda conn: read(conn, tenant_id=TENANT, task_id=task_id, **more)

    def pages(**more: Any) -> Read:
        return lambda conn: page(conn, TENANT, limit=51, **more)

    return {
        "a waiting task": lambda conn: view(conn, "crowd" + str(199 % 8), QUEUED),
        "an ended task": lambda conn: view(conn, TENANT, ENDED),
        "the first page": pages(),
        "the oldest first": pages(newest_first=False),
        "one status": pages(statuses=[TaskStatus.RUNNING]),
        "a status nobody has": pages(statuses=[TaskStatus.REVIEWING]),
        "several statuses": pages(statuses=[TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.RUNNING]),
        "a task's events": of_task(ENDED),
        "the newest events": of_task(ENDED, newest=True, before=9, limit=3),
        "events of a kind": of_task(ENDED, kinds=["tool"], agent_id="agent_x"),
        "events behind a number": of_task(ENDED, after=EVENTS_EACH - 2),
    }


def rounds(db: Database) -> dict[str, Callable[[], Awaitable[Any]]]:
    """What the relay does again and again; with 20,000 places and one."""
    nobody: Any = Nobody()
    reconciler = Reconciler(db, nobody, nobody)
    return {
        "the queue, no place free": Admission(db, reconciler, 1).round,
        "the queue, some places free": Admission(db, reconciler, 2_000).round,
        "cancels": reconciler.tell_of_cancels,
        "stalled": lambda: reconciler.find_stalled(idle_s=0),
        "questions": lambda: close_questions(db),
        "waiting agents": Waker(db, nobody).wake_waiting,
        "the outbox": lambda: _outbox(db, nobody),
        "reservations": lambda: settle_orphans(db),
        "old answers": lambda: purge(db),
    }


async def _outbox(db: Database, nobody: Any) -> None:
    outbox = Outbox(db, nobody)
    outbox._stream_made = True
    await outbox.drain()


async def test_nothing_that_is_asked_again_and_again_reads_a_whole_table(owner: Settings) -> None:
    async with fresh_database(owner) as settings, database(settings) as db:
        conn = await connect(settings, settings.pg_database)
        await fill(conn)
        await conn.close()
        large = Large(db)
        wrong: dict[str, list[str]] = {}
        for name, read in reads().items():
            with large.heard() as sent:
                async with db.begin() as own:
                    assert await read(own) is not None
            wrong[name] = [said for plan in await large.plans(sent) for said in whole(plan)]
        for name, work in rounds(db).items():
            with large.heard() as sent:
                await work()
            assert sent, name
            wrong[name] = [said for plan in await large.plans(sent) for said in whole(plan)]
        for name, statement in PLANNED_ONCE.items():
            wrong[name] = whole(await generic(db, statement))
        assert {name: said for name, said in wrong.items() if said} == {}


PLANNED_ONCE = {"T1": ledger_fast.BEGIN, "T2": ledger_fast.ANSWER}
"""What workers have planned once a connection, whatever its values are."""


async def generic(db: Database, statement: TextClause) -> Any:
    """The plan for any values."""
    sql, names = _compiled(statement)
    async with db._driver() as driver:
        plan = await driver.fetchval(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {sql}", *[None] * len(names))
    return json.loads(plan) if isinstance(plan, str) else plan


async def test_a_worker_has_statements_planned_once(servers: Settings) -> None:
    db = Database(servers.pg_url, pool_size=1, plan_once=True)
    async with db.begin() as conn:
        assert (await conn.execute(text("SHOW plan_cache_mode"))).scalar_one() == "force_generic_plan"
    await db.close()


LARGE = {"tasks", "task_starts", "events", "agents", "budget_reservations", "idempotency"}
SMALL = {"ix_tasks_admitted", "ix_tasks_cancelling", "ix_events_outbox"}
"""Indexes of what is under way: however many tasks there are, they hold few."""


def whole(plan: Any) -> list[str]:
    """The parts of a plan that read a large table, or one of its large indexes, from end to end."""
    said = json.dumps(plan)
    return [f"{table}: {said[:1_500]}" for table in set(_relations(plan)) & LARGE]


def _relations(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _relations(item)
    elif isinstance(node, dict):
        if node.get("Node Type") == "Seq Scan":
            yield node["Relation Name"]
        elif "Scan" in node.get("Node Type", "") and not node.get("Index Cond") and node.get("Plan Rows", 0) > 3_000:
            yield "" if node.get("Index Name") in SMALL else node.get("Relation Name", "")
        for value in node.values():
            yield from _relations(value)
