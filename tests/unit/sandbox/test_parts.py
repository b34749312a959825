"""The small parts: the kept output, the shared lock, folders without recursion, paths."""

import asyncio
import os
import random
from pathlib import Path

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox import records, tree
from services.sandbox.beneath import Root, relative
from services.sandbox.journal import Kept
from services.sandbox.kept import Output, durable_json
from services.sandbox.waiting import SharedLock


@pytest.mark.parametrize("seed", range(20))
def test_kept_output_is_the_head_and_the_tail(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    cap, path = 64, tmp_path / "output.bin"
    output, whole = Output(str(path), cap), b""
    for _ in range(chance.randrange(12)):
        piece = bytes(chance.choices(b"abcdefgh", k=chance.choice([0, 1, 7, 31, 32, 33, 64, 200])))
        output.add(piece)
        whole += piece
        kept = Kept(path, cap)
        text, truncated = kept.text()
        assert kept.total == len(whole)
        if len(whole) <= cap:
            assert (text, truncated) == (whole.decode(), False)
        else:
            middle = f"\n[... {len(whole) - cap} bytes left out ...]\n"
            assert (text, truncated) == (whole[:32].decode() + middle + whole[-32:].decode(), True)


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
    records.write(tmp_path / "r.json", records.Started(pid=1, at=2.0))
    durable_json(str(tmp_path / "k.json"), {"pid": 1, "at": 2.0})
    monkeypatch.undo()
    for name in ("r.json", "k.json"):
        assert records.read(tmp_path / name, records.Started) == records.Started(pid=1, at=2.0)


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
