"""The queue under SIGKILL: a relay that dies anywhere in an admission loses no task, and no more than the limit run."""

import secrets
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from sqlalchemy import func, select
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from agents.contracts.run import TaskEnd, TaskRef
from agents.contracts.task import StopReason
from services.relay.admission import Admission
from services.relay.starts import Reconciler, Workflows
from services.settings import Settings
from services.store.database import Database
from services.store.queue import HOLDERS
from services.store.tables import tasks
from services.store.task_ends import write_end
from services.temporal import workflow_id
from tests.service.relay.test_queue import submit
from tests.service.rooms import Process, database, fresh_database
from tests.support.team import connect

PLACES = 5
OPEN = (tasks.c.ended_at.is_(None),)
KILLS = [("commit", 2), ("committed", 2), ("committed", 5), ("start", 1), ("start", 4), ("commit", 4)]
"""Of the transactions of a round the first looks for what is overdue, the second gives places, the third looks for what
has no workflow, each further one notes a start."""


class Room(NamedTuple):
    settings: Settings
    db: Database
    client: Client
    queue: str

    async def killed(self, where: str, after: int) -> None:
        """A relay that works on the queue until it is killed."""
        command = ("tests/service/relay/dying_queue.py", where, str(after), str(PLACES), self.queue)
        with Process(*command, settings=self.settings) as dying:
            assert await dying.wait() == -signal.SIGKILL, dying.log()

    async def held(self) -> int:
        """How many places are taken."""
        async with self.db.begin() as conn:
            return len((await conn.execute(HOLDERS)).all())

    async def finish(self) -> int:
        """End every task whose workflow runs, and the workflow; how many there were."""
        async with self.db.begin() as conn:
            holders = (await conn.execute(select(tasks.c.id).where(tasks.c.admitted_at.is_not(None), *OPEN))).scalars()
        return sum([await self._finish(task_id) for task_id in holders])

    async def _finish(self, task_id: str) -> bool:
        try:
            await self.client.get_workflow_handle(workflow_id(task_id)).terminate()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        task = TaskRef(tenant_id="t", task_id=task_id)
        async with self.db.begin() as conn:
            await write_end(conn, task, TaskEnd(stop_reason=StopReason.COMPLETED), datetime.now(UTC))
        return True


@pytest.fixture
async def room(owner: Settings) -> AsyncIterator[Room]:
    name = "killed-" + secrets.token_hex(4)
    async with fresh_database(owner) as settings:
        own = settings.model_copy(update={"temporal_namespace": name})
        async with database(own) as db:
            yield Room(own, db, await connect(own, name), name)


async def test_a_relay_killed_anywhere_loses_no_task_and_lets_in_no_more_than_there_is_room_for(room: Room) -> None:
    ids = await submit(room.db, "t", 40)
    for where, after in KILLS:
        await room.killed(where, after)
        assert await room.held() <= PLACES
        await room.finish()
    sound = Admission(room.db, Reconciler(room.db, Workflows(room.client, room.queue), None), PLACES)  # type: ignore[arg-type]
    while True:
        await sound.round()
        assert await room.held() <= PLACES
        if not await room.finish():
            break
    async with room.db.begin() as conn:
        left = await conn.execute(select(func.count()).where(*OPEN))
        assert left.scalar_one() == 0
    for task_id in ids:
        runs = [run async for run in room.client.list_workflows(f"WorkflowId='{workflow_id(task_id)}'")]
        assert [run.status for run in runs] == [WorkflowExecutionStatus.TERMINATED], "each ran once"
