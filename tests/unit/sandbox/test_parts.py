"""The small parts: the kept output, the shared lock, folders without recursion, paths."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox import records, tree
from services.sandbox.beneath import Root, relative
from services.sandbox.journal import Entry, Kept
from services.sandbox.waiting import SharedLock

ENDED = records.Ended(exit_code=0, reason="exited", started_at=2.0)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 96, 97, 128, 1000])
def test_kept_output_is_the_head_and_the_tail(tmp_path: Path, size: int) -> None:
    cap, whole = 64, bytes(random.Random(size).choices(b"abcdefgh", k=size))
    said = whole if size <= cap else whole[:32] + whole[-32:]
    entry = Entry(tmp_path)
    entry.finish(ENDED.model_copy(update={"total_bytes": size}), said)
    text, truncated = Kept.read(tmp_path / "output.bin", cap).text()
    if size <= cap:
        assert (text, truncated) == (whole.decode(), False)
    else:
        middle = f"\n[... {size - cap} bytes left out ...]\n"
        assert (text, truncated) == (whole[:32].decode() + middle + whole[-32:].decode(), True)


def test_output_of_which_nothing_is_left_says_so() -> None:
    assert Kept(7, b"").text() == ("\n[... 7 bytes left out ...]\n", True)


def test_a_record_that_was_cut_is_none(tmp_path: Path) -> None:
    """As a power cut leaves it."""
    entry = Entry(tmp_path)
    entry.finish(ENDED)
    assert entry.ended() == ENDED
    (tmp_path / "exit.json").write_text(ENDED.model_dump_json()[:-3])
    (tmp_path / "intent.json").touch()
    assert (entry.intent(), entry.ended()) == (None, None)


def test_each_start_has_a_higher_number(tmp_path: Path) -> None:
    assert [records.next_epoch(tmp_path) for _ in range(3)] == [1, 2, 3]


async def test_an_owner_waits_for_sharers_and_goes_before_new_ones() -> None:
    lock, order = SharedLock(), []

    async def share(name: str) -> None:
        async with lock.shared():
            order.append(name)
            await asyncio.sleep(0.02)

    async def own() -> None:
        async with lock.exclusive(5):
            order.append("owner")

    async with lock.shared():
        owning = asyncio.create_task(own())
        await asyncio.sleep(0)
        late = asyncio.create_task(share("late"))
        await asyncio.sleep(0.01)
        assert order == []
    await asyncio.gather(owning, late)
    assert order == ["owner", "late"]


async def test_an_owner_gives_up_and_leaves_no_trace() -> None:
    lock = SharedLock()
    async with lock.shared():
        with pytest.raises(TimeoutError):
            async with lock.exclusive(0.01):
                pass
        async with asyncio.timeout(1), lock.shared():
            pass
    async with asyncio.timeout(1), lock.exclusive(1):
        pass


def test_a_tree_deeper_than_any_path_is_deleted(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(3_000):
        os.mkdir("deep", dir_fd=folder)
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
        below = os.open("deep", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    tree.delete(top)
    assert not top.exists()
    tree.delete(top)


def test_deleting_follows_no_link(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    top = tmp_path / "top"
    (top / "a").mkdir(parents=True)
    (top / "link").symlink_to(kept)
    (top / "a" / ".d0").symlink_to(kept)
    tree.delete(top)
    assert (kept / "file").exists()


def test_a_copy_leaves_links_as_they_are_and_special_files_out(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "d").mkdir(parents=True)
    target.mkdir()
    (source / "d" / "f").write_bytes(b"x" * 3_000_000)
    os.utime(source / "d", ns=(1, 10**18))
    (source / "out").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe")
    tree.copy(source, target, None)
    assert sorted(p.relative_to(target).as_posix() for p in target.rglob("*")) == ["d", "d/f", "out"]
    assert os.readlink(target / "out") == "/etc/passwd"
    assert (target / "d").stat().st_mtime_ns == 10**18
    assert (target / "d" / "f").stat().st_size == 3_000_000


def test_a_copy_keeps_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    with (source / "f").open("wb") as file:
        file.write(b"head")
        file.seek(1 << 30)
        file.write(b"middle")
        file.truncate(1 << 40)
    tree.copy(source, target, None)
    copied = (target / "f").stat()
    assert copied.st_size == 1 << 40
    assert copied.st_blocks * 512 < 1 << 20
    with (target / "f").open("rb") as file:
        assert file.read(4) == b"head"
        file.seek(1 << 30)
        assert file.read(7) == b"middle\0"


def test_a_record_that_is_written_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    records.write(tmp_path / "exit.json", ENDED)
    once = records.read(tmp_path / "exit.json", records.Ended)
    Entry(tmp_path).finish(ENDED)
    monkeypatch.undo()
    assert once == Entry(tmp_path).ended() == ENDED


@pytest.mark.parametrize(
    ("path", "plain"), [("/workspace/a", "a"), ("a/../b", "a/../b"), ("/workspace", "."), ("./a", "./a")]
)
def test_paths_are_taken_relative(path: str, plain: str) -> None:
    assert relative(path) == plain


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "../a", "a/../..", "/workspace/../x", "/workspacex"])
def test_paths_that_lead_out(path: str) -> None:
    with pytest.raises(LonghaulError) as caught:
        relative(path)
    assert caught.value.code is ErrorCode.PATH_ESCAPE


def test_the_kernel_keeps_a_link_from_leading_out(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "in").symlink_to("real")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "f").touch()
    with Root(tmp_path) as root:
        os.close(root.open("in/f", os.O_RDONLY))
        for path in ("out/passwd", "in/../../x", "/etc/passwd"):
            with pytest.raises(OSError, match="cross-device"):
                root.open(path, os.O_RDONLY)
        with pytest.raises(OSError, match="symbolic"):
            root.open("in/f", os.O_RDONLY, links=False)
