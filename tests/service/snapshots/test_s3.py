"""Snapshots on the real object store."""

import os
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from services.objects.client import Bucket
from services.settings import Settings
from services.snapshots.collect import collect
from services.snapshots.looking import Look
from services.snapshots.s3 import S3Shelf
from services.snapshots.shelf import FolderShelf, Shelf
from tests.support.trees import fill, state
from tests.unit.snapshots.room import Room, noise


@pytest.fixture
def bucket(servers: Settings) -> Bucket:
    return Bucket(servers, connections=8)


@pytest.fixture(params=["s3", "folder"])
def shelf(request: pytest.FixtureRequest, bucket: Bucket, tmp_path: Path) -> Shelf:
    """A fresh tenant's shelf, on each kind of store."""
    if request.param == "folder":
        return FolderShelf(tmp_path / "kept")
    return S3Shelf(bucket, "t" + secrets.token_hex(6))


def test_a_shelf_keeps_a_name_once(shelf: Shelf) -> None:
    assert not shelf.has("packs/a")
    assert shelf.put("packs/a", b"0123456789")
    assert not shelf.put("packs/a", b"0123456789")
    assert shelf.has("packs/a")
    assert (shelf.get("packs/a"), shelf.get("packs/a", 4, 3)) == (b"0123456789", b"456")
    assert (shelf.get("packs/a", 8), shelf.get("packs/a", 8, 100)) == (b"89", b"89")
    shelf.put("packs/b", b"")
    shelf.put("other", b"")
    [a, b] = shelf.names("packs/")
    assert (a.name, a.bytes, b.name, b.bytes) == ("packs/a", 10, "packs/b", 0)
    assert abs(a.modified - datetime.now(UTC)) < timedelta(minutes=1)
    shelf.delete("packs/a")
    shelf.delete("packs/a")
    assert not shelf.has("packs/a")
    with pytest.raises(LonghaulError) as caught:
        shelf.get("packs/a")
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_more_names_than_one_answer_holds(bucket: Bucket) -> None:
    shelf = S3Shelf(bucket, "t" + secrets.token_hex(6))
    for number in range(1_010):
        shelf.put(f"packs/{number:04}", b"")
    assert [part.name for part in shelf.names("packs/")] == [f"packs/{number:04}" for number in range(1_010)]


@pytest.fixture
def room(bucket: Bucket, tmp_path: Path) -> Room:
    made = Room(tmp_path)
    made.shelf = S3Shelf(bucket, "t" + secrets.token_hex(6))
    return made


def test_a_folder_comes_back_and_can_be_looked_into(room: Room) -> None:
    fill(room.work, 3)
    room.write("large", noise(20 << 20))
    done = room.take()
    assert room.take().added_bytes == 0
    assert state(room.back(done.ref)) == state(room.work)
    look = Look(room.shelf, done.ref)
    assert (
        b"".join(look.content(look.file(b"large"), 10 << 20, (10 << 20) + 9))
        == ((room.work / "large").read_bytes()[10 << 20 : (10 << 20) + 10])
    )


def test_a_pack_that_is_lost_is_a_damaged_snapshot(room: Room) -> None:
    room.write("file", noise(5 << 20))
    done = room.take()
    room.shelf.delete(sorted(room.parts("packs/"))[0])
    with pytest.raises(LonghaulError) as caught:
        room.back(done.ref)
    assert caught.value.code is ErrorCode.SNAPSHOT_FAILED


def test_tenants_share_nothing(bucket: Bucket, tmp_path: Path) -> None:
    one, other = Room(tmp_path), Room(tmp_path)
    one.shelf, other.shelf = (S3Shelf(bucket, "t" + secrets.token_hex(6)) for _ in range(2))
    data = os.urandom(100_000)
    for room in (one, other):
        room.write("same", data)
    one.take()
    kept = other.take()
    assert kept.added_bytes >= len(data)
    for name in one.parts(""):
        one.shelf.delete(name)
    assert state(other.back(kept.ref)) == state(other.work)


def test_collection_reads_the_stores_times(room: Room) -> None:
    room.write("file", noise(1_000))
    done = room.take()
    now = datetime.now(UTC)
    assert collect(room.shelf, list, now).condemned == 0
    assert collect(room.shelf, list, now + timedelta(days=2)).condemned == 1
    assert room.parts("condemned/") == {f"condemned/manifests/{done.ref.sha256}"}
    assert collect(room.shelf, list, now + timedelta(days=4)).deleted == 1


def test_a_store_that_is_away_says_so(servers: Settings, tmp_path: Path) -> None:
    room = Room(tmp_path)
    room.shelf = S3Shelf(Bucket(servers.model_copy(update={"s3_endpoint": "http://127.0.0.1:1"}), connections=2), "t")
    room.write("file", b"x")
    with pytest.raises(LonghaulError) as caught:
        room.take()
    assert caught.value.code is ErrorCode.OBJECTS_UNAVAILABLE
