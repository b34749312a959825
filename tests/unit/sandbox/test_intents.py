"""The copies of what was asked: after a power cut they are the record."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agents.contracts.sandbox import ExecRequest, Owner, SandboxLimits
from services.sandbox.home import FOLDERS, Home
from services.sandbox.intents import Intents
from services.sandbox.journal import Entry
from services.sandbox.records import Ended, Intent, Meta, write

SIZE = 1 << 16
NOW = datetime(2026, 12, 1, tzinfo=UTC)
OWNER = Owner(agent_id="a", agent_fence=1, sandbox_fence=1)


def home(top: Path, name: str = "sbx", made: datetime = NOW) -> Home:
    found = Home(
        top / "sandboxes" / name,
        Meta(id=name, tenant_id="t", task_id="t", limits=SandboxLimits(), uid=None, backend="nothing", created_at=made),
    )
    for folder in FOLDERS:
        (found.root / folder).mkdir(parents=True, exist_ok=True)
    write(found.root / "meta.json", found.meta)
    return found


def asked(name: str, command: str = "true") -> Intent:
    request = ExecRequest(exec_id=name, key=name, owner=OWNER, command=command)
    return Intent(request=request, call="c", instance="ab" * 16, created_at=NOW)


def record(intents: Intents, place: Home, intent: Intent) -> Entry:
    entry = Entry(place.exec_folder(intent.request.exec_id))
    intents.record(place, entry, intent)
    return entry


def opened(top: Path) -> Intents:
    made = Intents(top, SIZE)
    made.prepare()
    return made


def vanish(entry: Entry) -> None:
    entry.remove()


def empty(entry: Entry) -> None:
    (entry.folder / "intent.json").write_bytes(b"")


@pytest.mark.parametrize("cut", [vanish, empty])
def test_what_a_power_cut_took_is_there_again(tmp_path: Path, cut: Callable[[Entry], None]) -> None:
    place, intents = home(tmp_path), opened(tmp_path)
    entries = [record(intents, place, asked(f"e{n}")) for n in range(3)]
    entries[0].finish(Ended(exit_code=0, reason="exited", started_at=1.0))
    for entry in entries[1:]:
        cut(entry)
    intents.close()
    opened(tmp_path).close()
    assert [entry.intent() for entry in entries] == [asked(f"e{n}") for n in range(3)]
    assert entries[0].ended() is not None


def test_another_sandbox_of_the_same_id_gets_nothing(tmp_path: Path) -> None:
    intents = opened(tmp_path)
    entry = record(intents, home(tmp_path), asked("e"))
    gone = record(intents, home(tmp_path, "sbx_gone"), asked("e"))
    for one in (entry, gone):
        one.remove()
    home(tmp_path, made=datetime(2026, 12, 2, tzinfo=UTC))
    (tmp_path / "sandboxes" / "sbx_gone").rename(tmp_path / "trash")
    opened(tmp_path).close()
    assert entry.intent() is None
    assert not gone.folder.parent.exists()


def test_it_begins_anew_when_it_is_full_and_mixes_nothing(tmp_path: Path) -> None:
    place, intents = home(tmp_path), opened(tmp_path)
    entries = [record(intents, place, asked(f"e{n}", "x" * (n % 7 * 100))) for n in range(150)]
    intents.close()
    assert (tmp_path / "intents.log").stat().st_size == SIZE
    for entry in entries:
        entry.remove()
    again = opened(tmp_path)
    found = [n for n, entry in enumerate(entries) if entry.intent() is not None]
    assert 0 < len(found) < 150
    assert found == list(range(150 - len(found), 150)), "the latest, and no gap"
    late = record(again, place, asked("late"))
    late.remove()
    again.close()
    opened(tmp_path).close()
    assert late.intent() == asked("late"), "it went on behind the others"


def test_a_copy_that_was_cut_is_none(tmp_path: Path) -> None:
    place, intents = home(tmp_path), opened(tmp_path)
    first, second = (record(intents, place, asked(name)) for name in ("a", "b"))
    intents.close()
    log = tmp_path / "intents.log"
    data = log.read_bytes().rstrip(b"\0")
    log.write_bytes(data[:-1].ljust(SIZE, b"\0"))
    for entry in (first, second):
        entry.remove()
    opened(tmp_path).close()
    assert (first.intent(), second.intent()) == (asked("a"), None)


def test_one_that_is_too_large_has_a_record_alone(tmp_path: Path) -> None:
    place, intents = home(tmp_path), opened(tmp_path)
    entry = record(intents, place, asked("e", "x" * SIZE))
    assert entry.intent() == asked("e", "x" * SIZE)
    assert not (tmp_path / "intents.log").read_bytes().strip(b"\0")
