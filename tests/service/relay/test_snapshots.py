"""What no checkpoint needs is collected, a tenant at a time; what one needs stays."""

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import func, select

from agents.contracts.artifact import BlobRef
from agents.contracts.ids import Place, Role
from agents.contracts.run import AgentRef
from agents.contracts.sandbox import Snapshot
from services.relay import snapshots
from services.relay.snapshots import Collector
from services.settings import Settings
from services.snapshots.shelf import FolderShelf, Shelf
from services.store import checkpoints, keys
from services.store.database import Database
from tests.service.rooms import add_task, database, fresh_database
from tests.support.trees import state
from tests.unit.snapshots.room import Room, noise

DAY = timedelta(days=1.1)


class Times:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.at


async def days(db: Database, shelf_of: Callable[[str], Shelf], count: int) -> None:
    """Collect once a day; marks bear the real time, so the days are counted from the last of them."""
    times = Times()
    for day in range(1, count + 1):
        times.at = datetime.now(UTC) + day * DAY
        assert await Collector(db, shelf_of, times).collect() is False


async def tenant(db: Database) -> str:
    name = "t" + secrets.token_hex(6)
    async with db.begin() as conn:
        await keys.create_tenant(conn, tenant_id=name, name="test", at=datetime.now(UTC))
    return name


async def note(db: Database, tenant_id: str, ref: BlobRef) -> None:
    """A checkpoint's row."""
    kept = Snapshot(manifest=ref, files=1, folders=0, links=0, bytes=1, added_bytes=1)
    async with db.begin() as conn:
        task_id = await add_task(conn, tenant_id=tenant_id)
        place = Place(task_id=task_id, role=Role.EXECUTOR, step="fix")
        executor = AgentRef(tenant_id=tenant_id, place=place, round=1)
        assert await checkpoints.add(conn, executor, "sbx_1", kept, datetime.now(UTC))


async def test_what_a_checkpoint_needs_stays_and_the_rest_goes(owner: Settings, tmp_path: Path) -> None:
    async with fresh_database(owner) as settings, database(settings) as db:
        rooms = {}
        for _ in range(2):
            name = await tenant(db)
            (tmp_path / name).mkdir()
            rooms[name] = Room(tmp_path / name)
        wanted = {}
        for name, room in rooms.items():
            old = room.fork()
            old.write("old", noise(200_000))
            forgotten = old.take().ref
            room.write("new", noise(200_000))
            wanted[name] = room.take().ref
            await note(db, name, wanted[name])
            assert forgotten != wanted[name]
        await days(db, lambda name: rooms.get(name, Room(tmp_path)).shelf, 5)
        for name, room in rooms.items():
            assert room.parts("manifests/") == {f"manifests/{wanted[name].sha256}"}
            assert len(room.parts("packs/")) == 2
            assert state(room.back(wanted[name])) == state(room.work)


async def test_a_damaged_one_keeps_the_others_from_nothing(owner: Settings, tmp_path: Path) -> None:
    async with fresh_database(owner) as settings, database(settings) as db:
        names = sorted([await tenant(db), await tenant(db)])
        shelves = {name: FolderShelf(tmp_path / name) for name in names}
        for name in names:
            shelves[name].put("packs/old", b"nobody needs it")
        shelves[names[0]].put("manifests/" + "0" * 64, b"not a manifest")
        await note(db, names[0], BlobRef(sha256="0" * 64, bytes=1))
        await days(db, lambda name: shelves.get(name, FolderShelf(tmp_path / "none")), 4)
        assert shelves[names[0]].has("packs/old")
        assert not shelves[names[1]].has("packs/old")


async def test_one_collects_at_a_time(owner: Settings, tmp_path: Path) -> None:
    async with fresh_database(owner) as settings, database(settings) as db:
        name = await tenant(db)
        shelf = FolderShelf(tmp_path / name)
        shelf.put("packs/old", b"nobody needs it")
        async with db.begin() as conn:
            await conn.execute(select(func.pg_advisory_xact_lock(snapshots._LOCK)))
            await asyncio.wait_for(Collector(db, lambda _: shelf, lambda: datetime.now(UTC) + DAY).collect(), 10)
        assert not list(shelf.names("condemned/"))
