"""Looking into snapshots and comparing them, without a folder."""

import os
import random

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from services.snapshots.format import File, Folder, Link
from services.snapshots.looking import Look, compare
from tests.support.trees import fill, state
from tests.unit.snapshots.room import Room, noise


@pytest.mark.parametrize("seed", range(5))
def test_a_walk_finds_everything_from_anywhere_on(room: Room, seed: int) -> None:
    fill(room.work, seed)
    look = Look(room.shelf, room.take().ref)
    paths = [path for path, _ in look.walk()]
    assert set(paths) == set(state(room.work))
    for at, path in enumerate(paths):
        assert [p for p, _ in look.walk(path)] == paths[at + 1 :]


def test_a_file_is_found_and_read_in_part(room: Room) -> None:
    data = noise(3_000_000)
    room.write("a/b/large", data)
    look = Look(room.shelf, room.take().ref)
    file = look.file(b"a/b/large")
    chance = random.Random(1)
    spans = [(0, None), (0, 0), (2_999_999, None), *((a := chance.randrange(3_000_000), a + 9) for _ in range(20))]
    for first, last in spans:
        stop = len(data) if last is None else last + 1
        assert b"".join(look.content(file, first, last)) == data[first:stop]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (b"nothing", ErrorCode.FILE_NOT_FOUND),
        (b"a/b/large/more", ErrorCode.FILE_NOT_FOUND),
        (b"../a", ErrorCode.FILE_NOT_FOUND),
        (b"", ErrorCode.FILE_NOT_FOUND),
        (b"a", ErrorCode.NOT_A_FILE),
        (b"link", ErrorCode.NOT_A_FILE),
        (b"link/passwd", ErrorCode.FILE_NOT_FOUND),
    ],
)
def test_what_is_no_file_says_so(room: Room, path: bytes, code: ErrorCode) -> None:
    room.write("a/b/large", b"")
    (room.work / "link").symlink_to("/etc")
    look = Look(room.shelf, room.take().ref)
    with pytest.raises(LonghaulError) as caught:
        look.file(path)
    assert caught.value.code is code


def test_a_comparison_names_what_changed_and_nothing_else(room: Room) -> None:
    for name in ("same", "edited", "removed", "gone/inside", "mode", "deep/er/same"):
        room.write(name, name.encode())
    (room.work / "link").symlink_to("same")
    before = room.take().ref
    room.write("edited", b"otherwise")
    room.write("added/inside", b"")
    (room.work / "removed").unlink()
    (room.work / "gone/inside").unlink()
    (room.work / "gone").rmdir()
    (room.work / "mode").chmod(0o755)
    os.utime(room.work / "same", (1, 1))
    (room.work / "link").unlink()
    (room.work / "link").symlink_to("edited")
    after = room.take().ref
    found = {
        c.path: (type(c.before), type(c.after)) for c in compare(Look(room.shelf, before), Look(room.shelf, after))
    }
    nothing = type(None)
    assert found == {
        b"added": (nothing, Folder),
        b"added/inside": (nothing, File),
        b"edited": (File, File),
        b"gone": (Folder, nothing),
        b"gone/inside": (File, nothing),
        b"link": (Link, Link),
        b"mode": (File, File),
        b"removed": (File, nothing),
    }
    assert list(compare(Look(room.shelf, after), Look(room.shelf, after))) == []


def test_a_file_that_became_a_folder_is_one_change_with_what_is_inside(room: Room) -> None:
    room.write("thing", b"file")
    before = room.take().ref
    (room.work / "thing").unlink()
    room.write("thing/inside", b"file")
    after = room.take().ref
    assert [c.path for c in compare(Look(room.shelf, before), Look(room.shelf, after))] == [b"thing", b"thing/inside"]
