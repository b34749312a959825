"""What `test_full_disk.py` runs inside a small file system; its place is in FULL_DISK. Not collected by itself."""

import os
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from agents.contracts.event import AgentWaiting
from services.cli.connect import local
from tests.fault.case import Kill, PlayCase
from tests.fault.ended import examine
from tests.fault.play import Play
from tests.fault.tally import Tally
from tests.fault.test_kills import marks_with_long, with_long
from tests.support.small_disk import Filler
from tests.support.stack import Stack

FLOOR = 100_000_000
FULL_S = 15.0
"""How long not a byte is free: every server has failed to write by then."""

pytestmark = pytest.mark.timeout(280)


@pytest.fixture
def place() -> Path:
    return Path(os.environ["FULL_DISK"])


@pytest.fixture
def stack(place: Path) -> Iterator[Stack]:
    recordings = place.parent / "recordings"
    recordings.mkdir(exist_ok=True)
    env = {
        "LONGHAUL_RECORDINGS_DIR": str(recordings),
        "LONGHAUL_REPLAY_PACE_MS": "1",
        "LONGHAUL_STORAGE_FLOOR_BYTES": str(FLOOR),
    }
    running = Stack(place / "data", env=env)
    running.output = place.parent / "launcher.out"
    try:
        yield running.start()
        assert running.end() == 0, running.said()
        running.assert_no_leftovers()
    finally:
        print(running.said())
        if running.process and running.process.poll() is None:
            running.process.kill()
            running.process.wait()


def begin(stack: Stack, place: Path) -> PlayCase:
    word = f"disk-{secrets.token_hex(3)}"
    play = Play(word, tuple(with_long(word)), tuple(marks_with_long(word)))
    play.record(place.parent / "recordings")
    return PlayCase(stack, Tally(), play)


def refused(stack: Stack) -> None:
    """New work is refused with the code and what to do; what is there can be read."""
    access = local(stack.data)
    assert access
    with httpx.Client(base_url=access.url, headers={"Authorization": f"Bearer {access.key}"}, timeout=20) as http:
        task = http.post("/v1/tasks", json={"instruction": "x", "tier": "replay"})
        upload = http.post("/v1/files?name=a.txt", content=b"x" * 100)
        for answer in (task, upload):
            assert (answer.status_code, answer.json()["code"]) == (507, "STORAGE_FULL"), answer.text
            assert "Free some space" in answer.json()["detail"]
            assert int(answer.headers["Retry-After"]) > 0
        assert http.get("/v1/tasks").status_code == 200


def test_a_full_disk_stops_what_is_new_and_loses_nothing(stack: Stack, place: Path) -> None:
    case, filler = begin(stack, place), Filler(place)
    case.until_middle()
    filler.leave(FLOOR // 2)  # the floor: room for what is under way
    refused(stack)
    case.watch.wait(lambda: any(isinstance(s.event.data, AgentWaiting) for s in case.watch.seen), 60, "it says so")
    filler.leave(0)
    case.kills.append(Kill("the disk", datetime.now(UTC), time.monotonic()))
    for _ in range(3):
        time.sleep(FULL_S / 3)
        filler.leave(0)
        refused(stack)
    assert not case.ended
    filler.remove()
    examine(case)
    case.close()
    assert "Disk full" in stack.said()
    again = begin(stack, place)
    examine(again)
    again.close()


def test_used_up_in_the_middle_of_a_command(stack: Stack, place: Path) -> None:
    case, filler = begin(stack, place), Filler(place)
    case.until_middle()
    filler.leave(0)  # at once, without the floor's warning
    case.kills.append(Kill("the disk", datetime.now(UTC), time.monotonic()))
    time.sleep(FULL_S)
    refused(stack)
    assert not case.ended
    filler.remove()
    examine(case)
    case.close()
