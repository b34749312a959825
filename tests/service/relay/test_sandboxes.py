"""Sandboxes that nobody needs are destroyed, and no other."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert

from agents.contracts.sandbox import SandboxInfo, SandboxState
from services.ids import new_id
from services.relay.sandboxes import GRACE, UNKNOWN_GRACE, Reaper
from services.settings import Settings
from services.store.tables import sandboxes
from tests.service.rooms import add_task, database, fresh_database

LATER, LONG_AGO = timedelta(seconds=5), timedelta(hours=1)


class Host:
    """A runner that has what it is given."""

    def __init__(self) -> None:
        self.there: dict[str, SandboxInfo] = {}

    def has(self, age: timedelta) -> str:
        name = new_id("sbx")
        self.there[name] = SandboxInfo(
            id=name,
            tenant_id="default",
            task_id="task",
            state=SandboxState.READY,
            fence=1,
            backend="namespace",
            created_at=datetime.now(UTC) - age,
        )
        return name

    async def list_sandboxes(self) -> list[SandboxInfo]:
        return list(self.there.values())

    async def destroy(self, sandbox_id: str) -> None:
        del self.there[sandbox_id]


@pytest.mark.parametrize(
    ("made", "row_ended", "task_ended", "stays"),
    [
        pytest.param(LONG_AGO, None, None, True, id="in use"),
        pytest.param(LONG_AGO, GRACE + LATER, None, False, id="given back, and made once more by one who did not know"),
        pytest.param(LONG_AGO, GRACE - LATER, None, True, id="given back at this moment"),
        pytest.param(GRACE - LATER, LONG_AGO, None, True, id="young"),
        pytest.param(LONG_AGO, None, GRACE + LATER, False, id="left by a task that ended"),
        pytest.param(LONG_AGO, None, GRACE - LATER, True, id="of a task that ended at this moment"),
    ],
)
async def test_rows_decide(
    owner: Settings, made: timedelta, row_ended: timedelta | None, task_ended: timedelta | None, stays: bool
) -> None:
    host, now = Host(), datetime.now(UTC)
    name = host.has(made)
    async with fresh_database(owner) as own, database(own) as db:
        async with db.begin() as conn:
            task_id = await add_task(conn, ended_at=now - task_ended if task_ended else None)
            row: dict[str, object] = {
                "id": name,
                "tenant_id": "default",
                "task_id": task_id,
                "purpose": "clean_copy",
                "state": "ready",
            }
            row |= {"fence": 1, "backend": "namespace", "created_at": now - made}
            await conn.execute(insert(sandboxes).values(**row, ended_at=now - row_ended if row_ended else None))
        await Reaper(db, host).reap()
    assert (name in host.there) is stays


async def test_one_without_a_row_has_more_time(owner: Settings) -> None:
    host = Host()
    young, old = host.has(UNKNOWN_GRACE - LATER), host.has(UNKNOWN_GRACE + LATER)
    async with fresh_database(owner) as own, database(own) as db:
        await Reaper(db, host).reap()
    assert set(host.there) == {young}
    assert old not in host.there
