"""Collection takes what nobody needs, later; never what a snapshot needs, be it under way."""

import os
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import pytest

from agents.contracts.artifact import BlobRef
from agents.contracts.errors import LonghaulError
from services.snapshots import writing
from services.snapshots.collect import GRACE, Collected, collect
from services.snapshots.writing import Writer, find_base
from tests.support.trees import state
from tests.unit.snapshots.room import Room, noise

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def run(room: Room, live: Collection[BlobRef], at: datetime) -> Collected:
    """One collection; what it marks bears the time `at`."""
    before = room.parts("condemned/")
    done = collect(room.shelf, lambda: {ref.sha256 for ref in live}, at)
    for name in room.parts("condemned/") - before:
        os.utime(room.top / "shelf" / name, (at.timestamp(), at.timestamp()))
    return done


def two(room: Room) -> tuple[BlobRef, BlobRef]:
    """A snapshot, and one that shares half of it."""
    room.write("both", noise(5_000_000))
    room.write("first/only", noise(5_000_000))
    first = room.take().ref
    (room.work / "first/only").unlink()
    room.write("second/only", noise(300_000))
    return first, room.take().ref


def test_a_snapshot_may_take_less_than_the_grace() -> None:
    assert timedelta(seconds=writing.LONGEST_S) < GRACE / 2


def test_nothing_that_is_wanted_goes(room: Room) -> None:
    refs = two(room)
    before = room.parts("")
    for day in range(1, 5):
        assert run(room, refs, NOW + day * DAY).deleted == 0
    assert room.parts("") == before


def test_what_is_young_stays_and_what_is_old_goes_in_the_run_after(room: Room) -> None:
    other = room.fork()
    other.write("file", noise(5_000_000))
    first = other.take().ref
    _, second = two(room)
    was = state(room.work)
    assert run(room, [second], NOW + GRACE / 2).condemned == 0
    # first the manifests; what only they need is marked when they have gone
    counts = [run(room, [second], NOW + day * 1.1 * DAY) for day in range(1, 6)]
    assert [c.condemned > 0 for c in counts] == [True, True, False, False, False]
    assert [c.deleted > 0 for c in counts] == [False, True, True, False, False]
    assert sum(c.deleted_bytes for c in counts) > 4_900_000
    assert state(room.back(second)) == was
    with pytest.raises(LonghaulError, match="no snapshot"):
        room.back(first)
    assert not room.parts("condemned/")


def test_what_an_index_names_stays_and_goes_with_it(room: Room) -> None:
    """A content that was, is not, and is again: the snapshot in which it is not still names where it is."""
    content = noise(2_000_000)
    room.write("file", content)
    room.take()
    (room.work / "file").unlink()
    without = room.take().ref
    for day in (1, 2, 3):
        run(room, [without], NOW + day * 1.1 * DAY)
    room.write("file", content)
    again = room.take()
    assert again.added_bytes < 10_000
    assert (room.back(again.ref) / "file").read_bytes() == content
    (room.work / "file").unlink()
    for number in range(writing.MAX_SEGMENTS):
        room.write("other", b"%d" % number)
        last = room.take().ref
    counts = [run(room, [last], NOW + day * 1.1 * DAY) for day in range(4, 8)]
    assert sum(c.deleted_bytes for c in counts) > 1_900_000
    assert state(room.back(last)) == state(room.work)


def test_everything_goes_where_nothing_is_wanted(room: Room) -> None:
    two(room)
    for day in range(1, 8):
        run(room, [], NOW + day * 1.1 * DAY)
    assert room.parts("") == set()


def test_what_is_wanted_again_is_unmarked(room: Room) -> None:
    first, second = two(room)
    assert run(room, [second], NOW + 1.1 * DAY).condemned == 1
    run(room, [first, second], NOW + 1.2 * DAY)
    assert not room.parts("condemned/")


def test_a_snapshot_under_way_loses_nothing(room: Room) -> None:
    """It found its base wanted; then nobody wanted that any more; collections ran all the while."""
    first, second = two(room)
    base = find_base(room.shelf, second)
    with Writer(room.shelf, base) as writer:
        for step in range(3):
            run(room, [], NOW + 1.1 * DAY + step * timedelta(hours=2))
        assert base is not None
        done = writer.commit(base.manifest.model_copy(update={"mode": 0o700}), lambda: ())
    for day in range(2, 9):
        run(room, [done.ref], NOW + day * 1.1 * DAY)
    assert state(room.back(done.ref)) == state(room.work)
    with pytest.raises(LonghaulError, match="no snapshot"):
        room.back(first)


def test_what_is_marked_is_not_built_on(room: Room) -> None:
    first, second = two(room)
    run(room, [], NOW + 1.1 * DAY)
    assert find_base(room.shelf, first) is None
    assert find_base(room.shelf, second) is None


def test_equal_parts_that_are_marked_are_kept_once_more(room: Room) -> None:
    """A folder is kept anew, whose equal parts are about to go: it gets parts of its own."""
    room.write("file", noise(2_000_000))
    old = room.take()
    run(room, [], NOW + 1.1 * DAY)  # the manifest
    run(room, [], NOW + 2.2 * DAY)  # it goes, and its packs are marked
    assert room.parts("condemned/packs/")
    new = room.take()
    assert new.added_bytes >= old.added_bytes
    for day in range(4, 9):
        run(room, [new.ref], NOW + day * 1.1 * DAY)
    assert state(room.back(new.ref)) == state(room.work)


def test_a_mark_that_is_left_over_harms_no_part_of_that_name(room: Room) -> None:
    room.write("file", noise(100_000))
    done = room.take()
    pack = min(room.parts("packs/"))
    room.shelf.put(f"condemned/{pack}", b"")
    long_ago = (NOW - 9 * DAY).timestamp()
    os.utime(room.top / "shelf" / "condemned" / pack, (long_ago, long_ago))
    run(room, [], NOW)
    assert state(room.back(done.ref)) == state(room.work)
    assert not room.parts("condemned/")


def test_where_a_wanted_snapshot_is_damaged_nothing_goes(room: Room) -> None:
    first, second = two(room)
    for day in (1, 2):
        run(room, [first, second], NOW + day * 1.1 * DAY)
    for name in room.parts("index/"):
        room.shelf.delete(name)
    before = room.parts("")
    with pytest.raises(LonghaulError, match="damaged"):
        run(room, [first, second], NOW + 9 * DAY)
    assert room.parts("") == before


def test_a_snapshot_that_takes_too_long_is_none(room: Room) -> None:
    room.write("file", b"x")
    done = room.take()
    clock = iter([0.0, writing.LONGEST_S + 1])
    with Writer(room.shelf, None, clock=lambda: next(clock)) as writer, pytest.raises(LonghaulError, match="longer"):
        writer.commit(done.manifest.model_copy(update={"mode": 0o700}), lambda: ())
    assert room.parts("manifests/") == {f"manifests/{done.ref.sha256}"}
