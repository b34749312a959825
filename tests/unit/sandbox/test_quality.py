"""The state of a sandbox: what each row says of what was seen."""

import os
import time
from pathlib import Path

import pytest

from agents.contracts.errors import LonghaulError
from agents.contracts.sandbox import StateReport, StateRow
from services.cli.checkpoints import state_lines
from services.sandbox import quality
from services.sandbox.quality import Files, Process, Room
from services.sandbox.template import Laid

SAID = """\
1700000000123456789
7
Name:	supervisor
Pid:	1
PPid:	0
Name:	keeper
Pid:	6
PPid:	1
Name:	sh
Pid:	7
PPid:	6
Name:	grep
Pid:	8
PPid:	7
Name:	odd: name
Pid:	9
PPid:	1

overlay / overlay ro,nosuid 0 0
overlay /usr overlay ro 0 0
x /etc ext4 rw,nosuid 0 0
x /workspace ext4 rw 0 0
"""


def test_what_is_printed_inside_is_read() -> None:
    inside = quality.take(SAID)
    assert inside.clock_ns == 1700000000123456789
    assert inside.processes == (Process("keeper", 6, 1), Process("odd: name", 9, 1))
    assert inside.writable == ("/etc",)


@pytest.mark.parametrize("said", ["", "x", "1\n2\nName: a\nPid: b\nPPid: 1\n\n", "sh: 1: date: not found\n"])
def test_anything_else_is_no_state(said: str) -> None:
    with pytest.raises(LonghaulError, match="not readable"):
        quality.take(said)


def test_processes() -> None:
    keeper = Process("keeper", 6, 1)
    assert quality.processes_row([keeper], 1).clean
    left = quality.processes_row([keeper, Process("sleep", 9, 6), Process("python", 10, 1)], 1)
    assert (left.clean, left.count, left.detail) == (False, 2, "sleep, python")
    assert not quality.processes_row([keeper, Process("keeper", 11, 1)], 1).clean, "one calls itself a keeper"
    assert not quality.processes_row([Process("keeper", 12, 6)], 1).clean
    assert quality.processes_row([Process("x" * 100, n, 1) for n in range(40)], 0).detail.endswith("and 35 more")


def test_base() -> None:
    assert quality.base_row(Files(), ()).clean
    assert quality.base_row(Files(2, 0, ("/etc/hosts", "/etc/passwd")), ()).count == 2
    assert quality.base_row(Files(), ("/usr",)).detail == "/usr is writable"


@pytest.mark.parametrize(
    ("at", "ms", "words"), [(-5, 4_000, "behind"), (7, 5_000, "ahead"), (1, 0, ""), (2.5, 500, "")]
)
def test_clock(at: float, ms: int, words: str) -> None:
    begun = 10**18
    row = quality.clock_row(begun + int(at * 10**9), begun - 10**9, begun + 2 * 10**9)
    assert (row.clean, row.count) == (not words, ms)
    assert words in row.detail


def test_room() -> None:
    assert quality.room_row(Room(0.5, 1.0)).clean
    row = quality.room_row(Room(0.5, 0.01))
    assert (row.clean, row.detail) == (False, "1.0% of the inodes are free")


def test_changes_of_the_base_are_found_by_the_kernels_own_time(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_text("x")
    (tmp_path / "link").symlink_to("deep")
    os.utime(tmp_path / "deep" / "file", (0, 0))
    laid = Laid(tmp_path, "/base", tmp_path.stat().st_ctime_ns + 10**8)
    assert quality.changed([laid]) == Files()
    time.sleep(0.2)
    (tmp_path / "deep" / "file").write_text("y")
    os.utime(tmp_path / "deep" / "file", (0, 0))
    assert quality.changed([laid]) == Files(1, 0, ("/base/deep/file",))


def test_what_is_written_outside_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "home" / "matplotlib").mkdir(parents=True)
    (tmp_path / "home" / "matplotlib" / "fonts.json").write_text("there from the start")
    assert quality.outside_row(quality.written(tmp_path)).clean
    (tmp_path / "home" / ".netrc").write_text("12345")
    (tmp_path / "elsewhere").symlink_to("/etc")
    row = quality.outside_row(quality.written(tmp_path))
    assert (row.clean, row.count) == (False, 2 - 1)
    assert (row.bytes, row.detail) == (5, "/tmp/home/.netrc")


def test_a_person_is_shown_what_is_not_clean_alone() -> None:
    rows = (
        StateRow(matter="processes", clean=False, count=2, detail="sleep, sh"),
        StateRow(matter="clock", clean=True),
        StateRow(matter="outside", clean=False, count=1, bytes=5_000, detail="/tmp/x"),
    )
    assert state_lines(StateReport.model_validate({"at": "2026-01-01T00:00:00Z", "rows": rows})) == [
        "    processes: 2 left over (sleep, sh)",
        "    outside: 1 file outside the workspace, 5,000 bytes (/tmp/x)",
    ]
    assert state_lines(None) == []
    gone = StateReport.model_validate({"at": "2026-01-01T00:00:00Z", "fault": "it does not answer"})
    assert state_lines(gone) == ["    state not known: it does not answer"]
    assert len(StateReport.model_validate({"at": gone.at, "rows": rows}).model_dump_json()) < 600
