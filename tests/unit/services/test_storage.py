"""The floor under the free space: who is refused, who waits, what is said, what is started anew."""

import asyncio
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from agents.contracts.errors import ErrorCode, LonghaulError
from services.cli.words import awaited
from services.stack import disk
from services.stack.errors import StackRefused
from services.storage import Storage
from services.store.database import _faults
from tests.support.small_disk import Filler, run_on

MB = 1_000_000


def test_only_a_watched_place_below_its_floor_is_full(tmp_path: Path) -> None:
    Storage().check()
    Storage(tmp_path, 0).check()
    Storage(tmp_path / "gone", 1 << 60).check()
    with pytest.raises(LonghaulError, match="longhaul doctor") as caught:
        Storage(tmp_path, 1 << 60).check()
    assert caught.value.code is ErrorCode.STORAGE_FULL
    assert caught.value.code.rule.retryable
    assert caught.value.retry_after_s
    assert str(tmp_path) not in caught.value.detail, "a tenant reads this"


def test_a_start_without_space_is_refused(tmp_path: Path) -> None:
    disk.check_space(tmp_path / "not" / "there", {disk.VARIABLE: "1"})
    with pytest.raises(StackRefused, match=r"nothing was started.\nFree some space"):
        disk.check_space(tmp_path / "not" / "there", {disk.VARIABLE: str(1 << 60)})
    with pytest.raises(StackRefused, match="must be a number of bytes"):
        disk.check_space(tmp_path, {disk.VARIABLE: "1GB"})


@dataclass(frozen=True)
class Falling(Storage):
    """A storage whose free space is as told, one figure a look."""

    figures: list[int] = field(default_factory=list)

    @property
    def free_bytes(self) -> int:
        return self.figures[0]


@pytest.mark.parametrize(("lowest", "mended"), [(90 * MB, 0), (0, 1)])
async def test_it_is_told_once_and_servers_are_mended_where_space_was_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lowest: int, mended: int
) -> None:
    monkeypatch.setattr(disk, "LOOK_S", 0.0)
    storage = Falling(tmp_path, 100 * MB, [200 * MB])
    said: list[str] = []
    mends: list[int] = []

    async def mend() -> None:
        mends.append(1)

    watching = asyncio.create_task(disk.watch(storage, said.append, mend))
    for free in (200 * MB, 95 * MB, lowest, 95 * MB, 300 * MB, 300 * MB):
        storage.figures[0] = free
        for _ in range(5):
            await asyncio.sleep(0)
    watching.cancel()
    assert [line.split(":")[0] for line in said] == ["Disk full", "There is space on the disk again."]
    assert str(tmp_path) in said[0]
    assert len(mends) == mended


async def test_a_database_without_space_is_a_fault_that_passes() -> None:
    class NoSpace(Exception):
        sqlstate = "53100"

    with pytest.raises(LonghaulError) as caught:
        async with _faults():
            raise DBAPIError("INSERT", {}, NoSpace())
    assert caught.value.code is ErrorCode.STORAGE_FULL


def test_what_is_waited_for_is_said() -> None:
    assert "free space" in awaited("storage")


def test_an_end_that_a_full_disk_refused_is_recorded_later(tmp_path: Path) -> None:
    """No half of it is there before, and what is kept of the output is exact."""
    script = """
import sys
from pathlib import Path
from services.sandbox.journal import Entry
from services.sandbox.records import Ended
from tests.support.small_disk import Filler
place = Path(sys.argv[1])
entry, filler = Entry(place), Filler(place)
ended, output = Ended(exit_code=0, reason="exited", total_bytes=300_000, started_at=1.0), b"ab" * 150_000
filler.leave(20_000)
for _ in range(2):
    try:
        entry.finish(ended, output)
        sys.exit("there was space")
    except OSError as error:
        assert error.errno == 28, error
    assert entry.ended() is None
    assert not list(place.glob("*.tmp"))
filler.remove()
entry.finish(ended, output)
assert (entry.ended(), entry.kept().data) == (ended, output)
print("exact")
"""
    try:
        done = run_on(tmp_path, 2, ["-c", script, str(tmp_path)], 60)
    except subprocess.SubprocessError as error:
        pytest.skip(f"no namespaces here: {error}")
    assert done.stdout == "exact\n", done.stdout


def test_a_filler_gives_back_what_it_took(tmp_path: Path) -> None:
    filler = Filler(tmp_path)
    filler.leave(1 << 60)
    filler.remove()
    assert list(tmp_path.iterdir()) == []
