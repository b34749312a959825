"""What a task has left at its end: looked at down to the last row, mark and process."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import func, select

from agents.contracts.artifact import BlobRef
from agents.contracts.event import (
    Event,
    ExecLost,
    ExecStarted,
    ToolCalled,
    ToolCompleted,
    ToolFailed,
    ToolUnknown,
)
from agents.contracts.task import TaskResult, TaskStatus
from services.objects.s3 import S3Objects
from services.store import tables
from services.store.database import Database
from tests.fault.case import WITHIN_S, Case, Kill
from tests.fault.tally import Resume


class _Found(NamedTuple):
    """What one task has left."""

    result: TaskResult
    pages: list[Event]
    streamed: list[int]
    marks: list[str]
    twice: Counter[str]
    unknown: int


def examine(case: Case) -> None:
    """Wait for the task's end and look at everything that it left. What was found is counted before anything is
    asserted."""
    case.watch.to_end(WITHIN_S)
    found = _look(case)
    _count(case, found)
    result, numbers = found.result, [event.seq for event in found.pages]
    assert result.status is TaskStatus.COMPLETED, result
    assert all(check.passed for check in result.checks), result
    assert numbers == list(range(1, len(numbers) + 1))
    assert found.streamed == numbers
    assert tuple(found.marks) == case.expected_marks
    assert not found.twice
    assert found.unknown == 0
    _every_call_has_one_result(found.pages)
    _asked_once(case)
    _nothing_runs(case)
    asyncio.run(_rows_and_objects(case, result))


def _look(case: Case) -> _Found:
    result, pages = case.client.result(case.id), _pages(case)
    marks = case.marks(result)
    started = _started_commands(case)
    mine = [event.data.exec_id for event in pages if isinstance(event.data, ExecStarted)]
    effects = Counter([*marks, *(name for name in started if name in mine)])
    twice = Counter({effect: times - 1 for effect, times in effects.items() if times > 1})
    unknown = sum(isinstance(event.data, ToolUnknown | ExecLost) for event in pages)
    return _Found(result, pages, case.watch.numbers, marks, twice, unknown)


def _count(case: Case, found: _Found) -> None:
    tally = case.tally
    tally.unknown += found.unknown
    tally.gaps += _wrong([event.seq for event in found.pages]) + _wrong(found.streamed)
    tally.repeated += found.twice.total()
    for kill, later in zip(case.kills, [*case.kills[1:], None], strict=False):
        resumed = _resumed(case, kill, later)
        tally.resumes += [resumed] if resumed else []
    if found.result.status is TaskStatus.COMPLETED and set(found.marks) >= set(case.expected_marks):
        tally.lost -= 1


def _resumed(case: Case, kill: Kill, later: Kill | None) -> Resume | None:
    """From a kill to the next event; from the moment when all was up again where the whole stack was started anew. None
    where another kill came before it: that one counts."""
    after = case.watch.first_after(kill.at)
    if after is None or (later and after.came > later.then):
        return None
    return Resume(kill.what, case.job.name, max(0.0, after.came - (kill.up or kill.then)))


def _pages(case: Case) -> list[Event]:
    found: list[Event] = []
    while page := case.client.events(case.id, after=found[-1].seq if found else 0).data:
        found += page
    return found


def _wrong(numbers: Sequence[int]) -> int:
    """How many numbers are missing, double or out of order."""
    return sum(number != before + 1 for before, number in zip([0, *numbers], numbers, strict=False))


def _every_call_has_one_result(pages: Sequence[Event]) -> None:
    called = [event.data.key for event in pages if isinstance(event.data, ToolCalled)]
    ended = [event.data.key for event in pages if isinstance(event.data, ToolCompleted | ToolFailed | ToolUnknown)]
    assert sorted(called) == sorted(ended)
    assert len(called) == len(set(called))


def _started_commands(case: Case) -> list[str]:
    """Each command that the runner has started, by its id, as often as it has: from its log, not from ours."""
    return [line["exec_id"] for line in _said(case.stack.data.log("runner"), "a command was started")]


def _said(log: Path, message: str) -> Iterator[dict[str, str]]:
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if message in line and line.endswith("}"):  # a line may be cut where its writer was killed
            yield json.loads(line)


def _asked_once(case: Case) -> None:
    """The model was asked for each reply once, and after a kill once more for those that were under way."""
    words = f"replaying {case.job.name} "
    said = [json.loads(line)["message"] for line in case.replays() if words in line and line.endswith("}")]
    asked = Counter(str(message).removeprefix(words) for message in said)
    assert set(asked) >= set(case.job.calls)
    assert max(asked.values()) <= 1 + len(case.kills), asked
    assert asked.total() <= len(case.job.calls) + case.job.width * len(case.kills), asked


def _nothing_runs(case: Case) -> None:
    """No sandbox of the task and no process of its commands is left."""
    live = case.stack.data.sandboxes / "sandboxes"
    assert [path for path in live.glob("*/meta.json") if case.id in path.read_text(encoding="utf-8")] == []
    if case.expected_marks:
        assert _processes(case.job.name.encode()) == []


def _processes(word: bytes) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if word in (entry / "cmdline").read_bytes() or word in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


async def _rows_and_objects(case: Case, result: TaskResult) -> None:
    """No tokens are reserved, every sandbox's row has an end, and what was kept lies in the object store."""
    settings = case.stack.settings("worker")
    db, objects = Database(settings.pg_url, pool_size=1), S3Objects(settings)
    task, reserved, sandboxes = tables.tasks.c, tables.budget_reservations.c, tables.sandboxes.c
    try:
        async with db.begin() as conn:
            columns = task.tenant_id, task.reserved_tokens, task.reserved_cost_micro
            row = (await conn.execute(select(*columns).where(task.id == case.id))).one()
            unsettled = select(func.count()).where(reserved.task_id == case.id, reserved.settled_at.is_(None))
            assert (row.reserved_tokens, row.reserved_cost_micro, await conn.scalar(unsettled)) == (0, 0, 0)
            ends = list((await conn.execute(select(sandboxes.ended_at).where(sandboxes.task_id == case.id))).scalars())
            assert ends
            assert None not in ends
        for artifact in result.artifacts:
            data = await objects.get(row.tenant_id, BlobRef(sha256=artifact.sha256, bytes=artifact.bytes))
            assert hashlib.sha256(data).hexdigest() == artifact.sha256
    finally:
        await objects.close()
        await db.close()
