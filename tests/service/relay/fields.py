"""Events written as the parts of a task write them, and a reader that checks what reaches it."""

import asyncio
import json
from datetime import UTC, datetime

from sqlalchemy import text

from agents.contracts.event import ToolCompleted
from services.mailbox import subjects
from services.mailbox.link import Link
from services.store import events
from services.store.database import Database
from tests.service.rooms import add_task


async def tasks_with_writers(db: Database, tasks: int, per_task: int, *, size: int = 20) -> list[str]:
    """`tasks` tasks, each with `per_task` events written by two writers at once, a few a transaction."""
    async with db.begin() as conn:
        ids = [await add_task(conn) for _ in range(tasks)]
    half = per_task // 2
    room = asyncio.Semaphore(8)  # as many as there are connections

    async def one(task_id: str, count: int) -> None:
        async with room:
            await write(db, task_id, count, size=size)

    await asyncio.gather(*(one(task, n) for task in ids for n in (half, per_task - half)))
    return ids


async def write(db: Database, task_id: str, count: int, *, size: int = 20) -> None:
    """Append events to a task, one to five a transaction."""
    left = count
    while left > 0:
        n = min(left, 1 + left % 5)
        left -= n
        data = ToolCompleted(key="k/c0", tool="shell", content="x" * size, duration_ms=1)
        async with db.begin() as conn:
            await events.append(
                conn, tenant_id="default", task_id=task_id, at=datetime.now(UTC), drafts=[events.Draft(data)] * n
            )


async def unpublished(db: Database) -> int:
    """How many events wait."""
    async with db.begin() as conn:
        return int((await conn.execute(text("SELECT count(*) FROM events WHERE published_at IS NULL"))).scalar_one())


async def wait_until_published(db: Database, timeout_s: float = 30) -> None:
    """Return once nothing waits."""
    async with asyncio.timeout(timeout_s):
        while await unpublished(db):  # noqa: ASYNC110 - rows have no event
            await asyncio.sleep(0.1)


class Reader:
    """Reads as a consumer should: drops what it has seen, and notes every number that is not the next one."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.gaps: list[tuple[str, int, int]] = []
        self.repeats = 0

    async def listen(self, link: Link) -> None:
        await link.subscribe(subjects.ALL_EVENTS, self.take)

    def take(self, subject: str, body: bytes) -> None:
        event = json.loads(body)
        task, seq = event["task_id"], event["seq"]
        assert subject == f"lh.v1.ev.default.{task}"
        last = self.last.get(task, 0)
        if seq <= last:
            self.repeats += 1
        elif seq == last + 1:
            self.last[task] = seq
        else:
            self.gaps.append((task, last, seq))

    async def reaches(self, task_ids: list[str], seq: int, timeout_s: float = 30) -> None:
        """Wait until every task's last number is `seq`."""
        async with asyncio.timeout(timeout_s):
            while any(self.last.get(task) != seq for task in task_ids):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def kept(link: Link) -> list[tuple[str, int]]:
    """What the stream holds: task and number, in the stream's order."""
    streams = link.client.jetstream()
    count = (await streams.stream_info(subjects.EVENT_STREAM)).state.messages
    subscription = await streams.subscribe(subjects.ALL_EVENTS, ordered_consumer=True)
    bodies = [json.loads((await subscription.next_msg(timeout=5)).data) for _ in range(count)]
    await subscription.unsubscribe()
    return [(body["task_id"], body["seq"]) for body in bodies]


def gapless(found: list[tuple[str, int]], task_ids: list[str], per_task: int) -> bool:
    """Whether every task's events are there once and in order."""
    return all([seq for task, seq in found if task == each] == list(range(1, per_task + 1)) for each in task_ids)
