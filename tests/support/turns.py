"""A task with an agent on real parts (PostgreSQL, S3, NATS, the runner), and bursts of it in this process."""

import asyncio
import hashlib
from collections import Counter
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from sqlalchemy import insert, select, update

from agents.contracts.event import Event
from agents.contracts.ids import Place, Role
from agents.contracts.message import PERSON, name_of
from agents.contracts.plan import Plan, PlanStep
from agents.contracts.run import AgentRef, BurstEnd, TaskRef
from agents.contracts.sandbox import SandboxSpec
from agents.contracts.task import CheckResult, Limits, TaskSpec
from agents.contracts.trajectory import Brief
from agents.tools.registry import STANDARD, Toolbox
from services.ids import new_id
from services.mailbox.link import connect
from services.mailbox.live import NatsLive
from services.objects.s3 import S3Objects
from services.prompts import prompts
from services.sandbox.client import RunnerClient
from services.settings import Settings
from services.storage import Storage
from services.store import events, tables
from services.store.database import Database
from services.store.ledger import SqlLedger
from services.store.lost_sandboxes import SqlSandboxes
from services.store.post import SqlPost
from services.store.rounds import SqlRounds
from services.store.spill import Spill
from services.store.task_runs import SqlTasks
from services.worker.clock import SystemClock
from services.worker.tools import SandboxBench
from workflows.ports import Model
from workflows.turns import BurstRules, Bursts, Ports
from workflows.workspaces import Workspaces

QUICK = BurstRules(max_tokens=1_000, store_patience_s=5.0, engine_patience_s=0.3, blocked_pause_s=0.05)
STEP = PlanStep(id="s1", title="A step", instructions="Do it.", acceptance=["it is done"])


class Parts:
    """Adapters to a stack's servers."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._ends = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.db = Database(self.settings.pg_url, pool_size=10, max_overflow=0, plan_once=True)
        self._ends.push_async_callback(self.db.close)
        self.objects = S3Objects(self.settings, threads=4)
        self._ends.push_async_callback(self.objects.close)
        self.link = await connect(self.settings, "test")
        self._ends.push_async_callback(self.link.close)
        self.runner = RunnerClient(
            self.settings.runner_url, self.settings.runner_token.get_secret_value(), patience_s=5
        )
        self._ends.push_async_callback(self.runner.close)
        self.live = NatsLive(self.link)
        self.clock = SystemClock()
        self.ledger = SqlLedger(self.db, Spill(self.objects), self.clock, Storage())
        self.post = SqlPost(self.db)
        self.rounds = SqlRounds(self.db, self.objects, self.clock)
        tasks = SqlTasks(self.db, self.clock)
        self.workspaces = Workspaces(SqlSandboxes(self.db, self.clock), tasks, self.runner, self.objects, self.clock)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ends.aclose()

    def ports(self, model: Model) -> Ports:
        """What a burst takes."""
        bench = SandboxBench(self.runner, self.objects, self.clock, self.post)
        return Ports(self.ledger, model, self.runner, self.live, bench, self.clock, self.workspaces)


@dataclass
class Scene:
    """One task, one agent of it, perhaps a sandbox."""

    parts: Parts
    ref: AgentRef
    sandbox_id: str | None
    ports: Ports
    rules: BurstRules = QUICK
    toolbox: Toolbox = STANDARD
    drain: "Future[None]" = field(default_factory=Future)

    @property
    def task(self) -> TaskRef:
        return TaskRef(tenant_id=self.ref.tenant_id, task_id=self.ref.place.task_id)

    async def burst(self, **ports: Any) -> BurstEnd:
        """One attempt; `ports` replace some of the scene's."""
        bursts = Bursts(replace(self.ports, **ports), prompts(), self.rules, self.toolbox)
        return await bursts.run(self.ref, self.drain)

    async def row(self, table: Any, **where: Any) -> Any:
        """One row."""
        rows = await self.rows(table, **where)
        assert len(rows) == 1, rows
        return rows[0]

    async def rows(self, table: Any, **where: Any) -> list[Any]:
        """Rows of this tenant, in the order of their primary keys."""
        query = select(table).where(table.c.tenant_id == self.ref.tenant_id)
        for name, value in where.items():
            query = query.where(table.c[name] == value)
        async with self.parts.db.begin() as conn:
            return list((await conn.execute(query.order_by(*table.primary_key.columns))).all())

    async def events(self) -> list[Event]:
        """All events of the task; asserts that their numbers have no gaps."""
        async with self.parts.db.begin() as conn:
            found = await events.read(conn, tenant_id=self.ref.tenant_id, task_id=self.ref.place.task_id, limit=10_000)
        assert [event.seq for event in found] == list(range(1, len(found) + 1))
        return found

    async def types(self) -> list[str]:
        """The types of all events."""
        return [event.data.type for event in await self.events()]

    async def count(self) -> Counter[str]:
        """How often each type of event occurs."""
        return Counter(await self.types())

    async def set_task(self, **values: Any) -> None:
        """Change the task's row, as the API would."""
        async with self.parts.db.begin() as conn:
            await conn.execute(update(tables.tasks).where(tables.tasks.c.id == self.ref.place.task_id).values(**values))

    async def cancel(self) -> None:
        """As the API does: rows first, then the hint."""
        await self.set_task(cancel_requested_at=datetime.now(UTC), control_seq=1, status="cancelling")
        await self.parts.live.control(self.ref.tenant_id, self.ref.place.task_id)

    async def mail(self, text: str, kind: str = "steer", reply_to: str | None = None) -> None:
        """Put a message into the agent's mailbox."""
        async with self.parts.db.begin() as conn:
            mine = tables.agents.c.id == self.ref.place.agent_id
            seq = (
                await conn.execute(
                    update(tables.agents)
                    .where(mine)
                    .values(mail_sent=tables.agents.c.mail_sent + 1)
                    .returning(tables.agents.c.mail_sent)
                )
            ).scalar_one()
            row = {
                "id": new_id("msg"),
                "tenant_id": self.ref.tenant_id,
                "task_id": self.ref.place.task_id,
                "agent_id": self.ref.place.agent_id,
                "seq": seq,
                "recipient": name_of(self.ref.place),
                "kind": kind,
                "sender": PERSON,
                "reply_to": reply_to,
                "text": text,
                "sent_at": datetime.now(UTC),
                "delivered_at": datetime.now(UTC),
            }
            await conn.execute(insert(tables.messages).values(row))

    async def shell(self, command: str) -> str:
        """Run a command in the sandbox beside the agent."""
        from agents.contracts.sandbox import ExecRequest
        from workflows.names import harness

        assert self.sandbox_id
        name = new_id("exec")
        request = ExecRequest(exec_id=name, key=name, owner=harness(self.task), command=command, timeout_s=30)
        return (await self.parts.runner.exec(self.sandbox_id, request)).output


async def new_task(parts: Parts, tenant_id: str, limits: Limits, **spec: Any) -> TaskRef:
    """An accepted task, as the API would leave it."""
    task_id, now = new_id("task"), datetime.now(UTC)
    full = TaskSpec(instruction="Say hello.", limits=limits, **spec)
    row = {
        "id": task_id,
        "tenant_id": tenant_id,
        "instruction": full.instruction,
        "instruction_excerpt": full.instruction,
        "instruction_sha256": hashlib.sha256(full.instruction.encode()).hexdigest(),
        "spec": full.model_dump(mode="json", exclude={"instruction"}),
        "tier": full.tier,
        "metadata": {},
        "status": "queued",
        "admitted_at": now,  # by us: the stack's relay leaves it alone
        "created_at": now,
        "updated_at": now,
        "tokens_limit": limits.tokens,
        "cost_limit_micro": limits.cost_micro,
        "turns_limit": limits.turns,
    }
    async with parts.db.begin() as conn:
        await conn.execute(insert(tables.tasks).values(row))
    return TaskRef(tenant_id=tenant_id, task_id=task_id)


async def new_scene(
    parts: Parts,
    tenant_id: str,
    model: Model,
    *,
    role: Role = Role.EXECUTOR,
    limits: Limits | None = None,
    sandbox: bool = False,
    in_sandbox: str | None = None,
    checks: tuple[CheckResult, ...] = (),
    task: TaskRef | None = None,
    step: str = "s1",
    tools: dict[str, str] | None = None,
    revision: int = 1,
    recording: str | None = None,
) -> Scene:
    """An agent with an open first round; with a `recording` its tier is replay."""
    limits = limits or Limits()
    task = task or await new_task(parts, tenant_id, limits)
    place = Place(task_id=task.task_id, role=role, step=step, revision=revision)
    ref = AgentRef(tenant_id=tenant_id, place=place, round=1)
    name = new_id("sbx") if sandbox else in_sandbox
    if sandbox and name:
        await parts.runner.create(SandboxSpec(id=name, tenant_id=tenant_id, task_id=task.task_id))
    brief = Brief(
        tenant_id=tenant_id,
        place=place,
        goal="Say hello.",
        instruction_sha256="0" * 64,
        tier="replay" if recording else "auto",
        recording=recording,
        limits=limits,
        plan=Plan(steps=[STEP]),
        step=STEP,
        checks=checks,
        sandbox_id=name,
        tools=tools or {},
    )
    await parts.rounds.open_round(ref, brief, [])
    return Scene(parts, ref, name, parts.ports(model))


async def until(condition: Any, seconds: float = 10.0) -> None:
    """Wait for something (a function or a coroutine function) to be true."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.02)
