"""What surrounds the API in these tests: tenants with keys, and a writer that plays the workers and the relay."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import insert, select, update

from agents.contracts.approval import arguments_digest
from agents.contracts.artifact import BlobRef
from agents.contracts.event import EventData, StepStarted, TaskCompleted, TaskStarted
from agents.contracts.ids import Place, Role
from agents.contracts.model import Delta, Usage
from agents.contracts.run import AgentRef
from agents.contracts.sandbox import Snapshot, StateReport, StateRow
from agents.contracts.task import TaskStatus
from services.ids import new_id
from services.mailbox import subjects
from services.mailbox.link import Link
from services.objects.s3 import S3Objects
from services.sandbox.capture import capture
from services.snapshots.s3 import S3Shelf
from services.store import checkpoints, events, keys
from services.store.database import Database
from services.store.keys import Scope
from services.store.tables import agents, approvals, artifacts, tasks


@dataclass(frozen=True)
class Tenant:
    """A tenant with one key of every scope, one that may only read, and one without a scope."""

    id: str
    key: str
    reading_key: str
    powerless_key: str
    url: str

    def http(self, key: str | None = None) -> httpx.AsyncClient:
        """A plain client with the tenant's key."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30)


async def make_tenant(db: Database, url: str) -> Tenant:
    """A fresh tenant."""
    tenant_id, at = new_id("t").lower().replace("_", "-"), datetime.now(UTC)
    secrets: list[str] = []
    async with db.begin() as conn:
        await keys.create_tenant(conn, tenant_id=tenant_id, name="test", at=at)
        for scopes in (tuple(Scope), (Scope.READ,), ()):
            made = await keys.create_key(conn, tenant_id=tenant_id, name="k", scopes=scopes, at=at)
            secrets.append(made.secret)
    return Tenant(tenant_id, secrets[0], secrets[1], secrets[2], url)


class Writer:
    """Writes events as the workers do, and tells of them as the relay does where there is a link."""

    def __init__(self, db: Database, tenant: Tenant, link: Link | None = None) -> None:
        self._db = db
        self._tenant = tenant
        self.link = link

    async def write(self, task_id: str, drafts: Sequence[EventData]) -> int:
        """Append in one transaction; returns the last number."""
        async with self._db.begin() as conn:
            last = await events.append(
                conn,
                tenant_id=self._tenant.id,
                task_id=task_id,
                at=datetime.now(UTC),
                drafts=[events.Draft(d) for d in drafts],
            )
        if self.link:
            await self.publish(task_id, last - len(drafts))
        return last

    async def publish(self, task_id: str, after: int) -> None:
        """Tell of the events behind a number."""
        assert self.link
        async with self._db.begin() as conn:
            found = await events.read(conn, tenant_id=self._tenant.id, task_id=task_id, after=after, limit=1_000)
        for event in found:
            await self.link.publish(subjects.event(self._tenant.id, task_id), event.model_dump_json().encode())

    async def admit(self, task_id: str) -> None:
        """Give the task its place, as the relay does."""
        async with self._db.begin() as conn:
            mine = (tasks.c.tenant_id == self._tenant.id, tasks.c.id == task_id)
            await conn.execute(update(tasks).where(*mine).values(admitted_at=datetime.now(UTC), waiting_for=None))

    async def begin(self, task_id: str) -> None:
        """Two ordinary events."""
        await self.write(task_id, [TaskStarted(), StepStarted(title="one", round=1)])

    async def steps(self, task_id: str, count: int) -> None:
        """As many events, one a transaction."""
        for n in range(count):
            await self.write(task_id, [StepStarted(title=f"step {n}", round=1)])

    async def end(self, task_id: str) -> None:
        """End the task well, state and event together."""
        at = datetime.now(UTC)
        async with self._db.begin() as conn:
            mine = (tasks.c.tenant_id == self._tenant.id, tasks.c.id == task_id)
            ended = {
                "status": TaskStatus.COMPLETED.value,
                "stop_reason": "completed",
                "ended_at": at,
                "summary": "done",
            }
            await conn.execute(update(tasks).where(*mine).values(**ended))
            draft = events.Draft(TaskCompleted(summary="done", usage=Usage()))
            last = await events.append(conn, tenant_id=self._tenant.id, task_id=task_id, at=at, drafts=[draft])
        if self.link:
            await self.publish(task_id, last - 1)

    async def delta(self, task_id: str, text: str) -> None:
        """A piece of a reply, as a burst sends it."""
        assert self.link
        delta = Delta(task_id=task_id, agent_id="agent_1", key="k", fence=1, text=text, at=datetime.now(UTC))
        subject = subjects.tokens_of(self._tenant.id, task_id, "agent_1")
        await self.link.publish(subject, delta.model_dump_json().encode())

    async def artifact(self, objects: S3Objects, task_id: str, path: str, data: bytes) -> str:
        """Keep an artifact; returns its id."""
        return await self._artifact_row(task_id, path, await objects.put(self._tenant.id, data))

    async def checkpoint(self, objects: S3Objects, task_id: str, files: dict[str, bytes], round_no: int = 1) -> str:
        """Keep a workspace of these files, as a round of the step `fix` left it; returns the checkpoint's id."""
        kept = await asyncio.to_thread(self._kept, objects, files)
        place = Place(task_id=task_id, role=Role.EXECUTOR, step="fix")
        executor = AgentRef(tenant_id=self._tenant.id, place=place, round=round_no)
        async with self._db.begin() as conn:
            added = await checkpoints.add(conn, executor, "sbx_1", kept, datetime.now(UTC))
        assert added
        return added.id

    def _kept(self, objects: S3Objects, files: dict[str, bytes]) -> Snapshot:
        with tempfile.TemporaryDirectory() as top:
            work = Path(top, "work")
            for path, data in {"empty/x": b"", **files}.items():
                (work / path).parent.mkdir(parents=True, exist_ok=True)
                (work / path).write_bytes(data)
            (work / "link").symlink_to("/etc")
            done = capture(work, S3Shelf(objects.bucket, self._tenant.id), Path(top, "notes"))
        counts = done.manifest.model_dump(include={"files", "folders", "links", "bytes"})
        row = StateRow(matter="outside", clean=False, count=2, bytes=7, detail="/tmp/x")
        state = StateReport(at=datetime.now(UTC), rows=(row,))
        return Snapshot(manifest=done.ref, added_bytes=done.added_bytes, state=state, **counts)

    async def lost_artifact(self, task_id: str) -> str:
        """An artifact whose bytes nobody has."""
        return await self._artifact_row(task_id, "lost", BlobRef(sha256="0" * 64, bytes=5))

    async def _artifact_row(self, task_id: str, path: str, blob: BlobRef) -> str:
        artifact_id = new_id("art")
        async with self._db.begin() as conn:
            await conn.execute(
                insert(artifacts).values(
                    id=artifact_id,
                    tenant_id=self._tenant.id,
                    task_id=task_id,
                    key=artifact_id,
                    path=path,
                    sha256=blob.sha256,
                    bytes=blob.bytes,
                    media_type="text/plain",
                    created_at=datetime.now(UTC),
                )
            )
        return artifact_id

    async def approval(self, task_id: str, *, expires_s: float = 60.0, arguments: str = "{}") -> str:
        """A call that waits for a person, as a burst leaves it; returns the approval's id."""
        at, agent_id, made = datetime.now(UTC), new_id("agent"), new_id("appr")
        tenant: dict[str, Any] = {"tenant_id": self._tenant.id, "task_id": task_id}
        agent = {"id": agent_id, "epoch": 0, "role": "executor", "revision": 1, "step": "s1", "created_at": at}
        agent |= {"state": "waiting", "activity": "waiting for approval", "activity_at": at}
        row = {"id": made, "agent_id": agent_id, "step_id": "s1", "round": 1, "turn": 1, "call_index": 0, "number": 1}
        row |= {"call_key": made, "kind": "call", "tool": "shell", "arguments": arguments, "state": "pending"}
        row |= {"arguments_sha256": arguments_digest(arguments)}
        times = {"requested_at": at, "expires_at": at + timedelta(seconds=expires_s)}
        async with self._db.begin() as conn:
            await conn.execute(insert(agents).values(tenant | agent))
            await conn.execute(insert(approvals).values(tenant | row | times))
        return made

    async def count(self) -> int:
        """How many tasks the tenant has in the database."""
        async with self._db.begin() as conn:
            found = await conn.execute(select(tasks.c.id).where(tasks.c.tenant_id == self._tenant.id))
            return len(found.all())


async def submit(http: httpx.AsyncClient, **spec: object) -> str:
    """Submit a small task; returns its id."""
    answer = await http.post("/v1/tasks", json={"instruction": "do it", "tier": "replay", **spec})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])
