"""What is stored is stored once: from one snapshot to the next, in forks, in equal folders; and never half."""

import threading
from pathlib import Path

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox.restore import restore
from services.snapshots import writing
from services.snapshots.shelf import FolderShelf, Remembering
from tests.support.trees import state
from tests.unit.snapshots.room import Room, noise


def some(room: Room, count: int = 50) -> None:
    for number in range(count):
        room.write(f"d{number % 5}/f{number}", noise(5_000))


def test_nothing_changed_is_the_same_snapshot_and_stores_nothing(room: Room) -> None:
    some(room)
    first = room.take()
    before = room.parts("")
    assert room.take() == writing.Written(first.ref, first.manifest, 0)
    assert room.parts("") == before


def test_a_change_stores_what_changed(room: Room) -> None:
    some(room)
    first = room.take()
    room.write("d1/f1", noise(5_000))
    second = room.take()
    assert first.added_bytes > 200_000
    assert second.added_bytes < 10_000
    assert second.manifest.segments[: len(first.manifest.segments)] == first.manifest.segments


def test_a_fork_that_was_restored_stores_what_it_changes(room: Room) -> None:
    some(room)
    first = room.take()
    fork = room.fork()
    restore(fork.shelf, first.ref, fork.work, None)
    fork.begin_from(first.ref)
    fork.write("new", noise(3_000))
    assert fork.take().added_bytes < 10_000


def test_equal_folders_have_equal_trees_whoever_made_them(room: Room) -> None:
    some(room)
    first = room.take()
    other = room.fork()
    restore(other.shelf, first.ref, other.work, None)
    again = other.take()  # knows of no earlier one
    assert (again.manifest.root, state(other.work)) == (first.manifest.root, state(room.work))


def test_equal_contents_are_stored_once(room: Room) -> None:
    data = noise(900_000)
    for number in range(20):
        room.write(f"copy{number}", data)
    assert room.take().added_bytes < 1_000_000


def test_the_index_of_many_snapshots_is_made_anew(room: Room) -> None:
    some(room)
    for number in range(writing.MAX_SEGMENTS + 4):
        room.write("log", noise(2_000 + number))
        done = room.take()
    assert len(done.manifest.segments) < writing.MAX_SEGMENTS
    assert state(room.back(done.ref)) == state(room.work)


def test_a_base_that_is_gone_is_not_built_on(room: Room) -> None:
    some(room)
    first = room.take()
    for name in room.parts(""):
        room.shelf.delete(name)
    room.write("more", b"more")
    again = room.take()
    assert again.added_bytes > first.added_bytes
    assert state(room.back(again.ref)) == state(room.work)


@pytest.mark.parametrize("part", ["index/", "manifests/"])
def test_a_base_that_is_damaged_is_not_built_on(room: Room, part: str) -> None:
    some(room)
    room.take()
    for name in room.parts(part):
        path = room.top / "shelf" / name
        path.unlink()
        path.write_bytes(b"rubbish")
    room.write("more", b"more")
    assert state(room.back(room.take().ref)) == state(room.work)


@pytest.mark.parametrize("rubbish", [b"", b"rubbish", b"{}"])
def test_notes_that_cannot_be_read_cost_time_and_nothing_else(room: Room, rubbish: bytes) -> None:
    some(room)
    first = room.take()
    room.notes.write_bytes(rubbish)
    assert room.take().ref == first.ref


def test_what_is_remembered_near_is_asked_for_no_more_and_mended(room: Room, tmp_path: Path) -> None:
    some(room)
    near = tmp_path / "near"
    room.shelf = Remembering(room.shelf, near)
    room.take()
    [index] = [path for path in near.rglob("*") if path.is_file()]
    index.write_bytes(b"rubbish")
    room.write("more", noise(100))
    assert state(room.back(room.take().ref)) == state(room.work)


class Failing(FolderShelf):
    """A shelf that takes so many parts and then no more."""

    def __init__(self, folder: Path, takes: int) -> None:
        super().__init__(folder)
        self._left = takes
        self._lock = threading.Lock()

    def put(self, name: str, data: bytes) -> bool:
        with self._lock:
            self._left -= 1
            if self._left < 0:
                raise LonghaulError(ErrorCode.OBJECTS_UNAVAILABLE, "away")
        return super().put(name, data)


@pytest.mark.parametrize("takes", range(5))
def test_a_snapshot_that_is_cut_off_is_none_and_the_next_is_whole(room: Room, takes: int) -> None:
    some(room)
    before = room.take()
    whole = room.shelf
    room.write("large", noise(6 << 20))  # two packs, a pack of trees, an index, a manifest
    room.shelf = Failing(room.top / "shelf", takes)
    with pytest.raises(LonghaulError, match="away"):
        room.take()
    room.shelf = whole
    assert room.parts("manifests/") == {f"manifests/{before.ref.sha256}"}
    assert state(room.back(room.take().ref)) == state(room.work)
