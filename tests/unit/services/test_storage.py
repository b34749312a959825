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


def test_output_that_a_full_disk_refused_is_taken_later(tmp_path: Path) -> None:
    """The same piece may be added again: what is kept is exact."""
    script = """
import sys
from pathlib import Path
from services.sandbox.kept import Output, durable_json
from tests.support.small_disk import Filler
place = Path(sys.argv[1])
output, filler = Output(str(place / "output.bin"), 1 << 20), Filler(place)
output.add(b"a" * 100_000)
filler.leave(20_000)
piece = b"b" * 300_000
for _ in range(2):
    try:
        output.add(piece)
        sys.exit("there was space")
    except OSError as error:
        assert error.errno == 28, error
    try:
        durable_json(str(place / "exit.json"), {"long": "x" * 100_000})
        sys.exit("there was space")
    except OSError:
        assert not list(place.glob("exit.json*"))
filler.remove()
output.add(piece)
assert (place / "output.bin").read_bytes()[8:] == b"a" * 100_000 + piece
assert int.from_bytes((place / "output.bin").read_bytes()[:8], "little") == 400_000
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
