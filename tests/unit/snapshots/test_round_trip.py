"""What is kept comes back byte for byte: contents, modes, times, links, empty folders, odd names."""

import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.contracts.errors import ErrorCode, LonghaulError
from tests.support.trees import fill, state
from tests.unit.snapshots.room import Room, noise

ORDINARY = 61_234


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_any_folder_comes_back(seed: int) -> None:
    with tempfile.TemporaryDirectory() as top:
        room = Room(Path(top))
        fill(room.work, seed)
        assert state(room.back(room.take().ref)) == state(room.work)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_so_does_each_of_a_row_of_changes(seed: int) -> None:
    with tempfile.TemporaryDirectory() as top:
        room, chance = Room(Path(top)), random.Random(seed)
        expected = []
        for _ in range(4):
            fill(room.work, chance.randrange(2**32), entries=8)
            for path in [p for p in sorted(room.work.rglob("*")) if p.is_file() and not p.is_symlink()]:
                if chance.random() < 0.3:
                    path.chmod(0o600)
                    with path.open("r+b") as file:
                        file.seek(chance.randrange(path.stat().st_size + 1))
                        file.write(chance.randbytes(chance.choice([1, 5_000])))
                elif chance.random() < 0.1 and os.access(path.parent, os.W_OK):
                    path.unlink()
            expected.append((room.take().ref, state(room.work)))
        for ref, was in expected:
            assert state(room.back(ref)) == was


def test_an_empty_folder_comes_back(room: Room) -> None:
    assert state(room.back(room.take().ref)) == {}


def test_a_change_of_one_byte_under_the_old_time_is_seen(room: Room) -> None:
    path = room.write("file", b"before")
    os.utime(path, ns=(10**18, 10**18))
    room.take()
    path.write_bytes(b"afterw")
    os.utime(path, ns=(10**18, 10**18))
    assert (room.back(room.take().ref) / "file").read_bytes() == b"afterw"


def test_a_file_that_changes_right_after_its_snapshot_is_read_again(room: Room) -> None:
    """Its times may not show it: they are only as fine as the clock of the file system."""
    for number in range(20):
        room.write("file", b"%02d" % number)
        assert (room.back(room.take().ref) / "file").read_bytes() == b"%02d" % number


def test_a_file_of_holes_costs_nothing_and_comes_back(room: Room) -> None:
    with (room.work / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"in the middle")
    done = room.take()
    assert (done.manifest.bytes, done.added_bytes < 10_000) == (1 << 40, True)
    back = room.back(done.ref) / "sparse"
    assert (back.stat().st_size, back.stat().st_blocks < 1000) == (1 << 40, True)
    with back.open("rb") as file:
        file.seek(1 << 39)
        assert file.read(20) == b"in the middle" + bytes(7)


def test_a_large_file_that_grows_at_its_front_is_stored_once(room: Room) -> None:
    data = noise(20 << 20)
    room.write("large", data)
    room.take()
    room.write("large", b"a line before\n" + data)
    done = room.take()
    assert done.added_bytes < 3 << 20
    assert (room.back(done.ref) / "large").read_bytes() == b"a line before\n" + data


def test_special_files_are_left_out_and_links_never_followed(room: Room, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("not yours")
    os.mkfifo(room.work / "pipe")
    (room.work / "out").symlink_to(secret)
    (room.work / "file").symlink_to(secret / "key")
    done = room.take()
    assert (done.manifest.files, done.manifest.folders, done.manifest.links) == (0, 0, 2)
    back = room.back(done.ref)
    assert sorted(os.listdir(back)) == ["file", "out"]
    assert (back / "out").readlink() == secret


def test_what_its_owner_may_not_read_is_kept_all_the_same() -> None:
    """As an ordinary user, because root reads everything."""
    with tempfile.TemporaryDirectory() as top:
        if os.geteuid() != 0:
            return _hide(Room(Path(top)))
        os.chown(top, ORDINARY, ORDINARY)
        if (child := os.fork()) == 0:
            code = 1
            try:
                os.setresgid(ORDINARY, ORDINARY, ORDINARY)
                os.setresuid(ORDINARY, ORDINARY, ORDINARY)
                _hide(Room(Path(top)))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return None


def _hide(room: Room) -> None:
    room.write("hidden/file", b"content").chmod(0)
    room.write("listed/file", b"content")
    (room.work / "hidden").chmod(0)
    (room.work / "listed").chmod(0o400)
    done = room.take()
    back = room.back(done.ref)
    for top in (room.work, back):
        assert [(top / name).stat().st_mode & 0o777 for name in ("hidden", "listed")] == [0, 0o400]
    (back / "listed").chmod(0o700)
    assert (back / "listed" / "file").read_bytes() == b"content"
    (back / "hidden").chmod(0o700)
    (back / "hidden" / "file").chmod(0o600)
    assert (back / "hidden" / "file").read_bytes() == b"content"


def test_a_path_that_no_call_can_name_is_refused_by_name(room: Room) -> None:
    at = os.open(room.work, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=at)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    with pytest.raises(LonghaulError, match="too long") as caught:
        room.take()
    assert caught.value.code is ErrorCode.SNAPSHOT_FAILED
