"""What a task has left at its end: looked at down to the last row, mark and process."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import func, select

from agents.contracts.artifact import BlobRef
from agents.contracts.event import Event, ExecLost, ToolUnknown
from agents.contracts.task import TaskResult, TaskStatus
from services.objects.s3 import S3Objects
from services.store import tables
from services.store.database import Database
from tests.fault.case import WITHIN_S, Case, Kill
from tests.fault.play import MARKS


def examine(case: Case) -> None:
    """Wait for the task's end and look at everything that it left. What was found is counted before anything is
    asserted."""
    case.watch.to_end(WITHIN_S)
    result, pages, streamed = case.client.result(case.id), _pages(case), case.watch.numbers
    marks = _marks(case, result)
    numbers, unknown = [event.seq for event in pages], _unknown(pages)
    _count(case, result, marks, _wrong(numbers) + _wrong(streamed), unknown)
    assert result.status is TaskStatus.COMPLETED, result
    assert all(check.passed for check in result.checks), result
    assert numbers == list(range(1, len(pages) + 1))
    assert streamed == numbers
    assert tuple(marks) == case.play.marks
    assert unknown == 0
    _asked_once(case)
    _nothing_runs(case)
    asyncio.run(_rows_and_objects(case, result))


def _count(case: Case, result: TaskResult, marks: Sequence[str], gaps: int, unknown: int) -> None:
    tally = case.tally
    tally.unknown += unknown
    tally.gaps += gaps
    tally.repeated += sum(count - 1 for count in Counter(marks).values())
    tally.resumes += [resumed for kill in case.kills if (resumed := _resumed(case, kill))]
    if result.status is TaskStatus.COMPLETED and set(marks) >= set(case.play.marks):
        tally.lost -= 1


def _resumed(case: Case, kill: Kill) -> tuple[str, float] | None:
    """From a kill to the next event; from the moment when all was up again where the whole stack was started anew."""
    after = case.watch.first_after(kill.at)
    if after is None:
        return None
    seconds, what = after.came - kill.then, f"{case.play.name}: {kill.what}"
    if kill.up is None:
        return what, seconds
    return f"{what} ({seconds:.1f} s with the start of the stack)", max(0.0, after.came - kill.up)


def _pages(case: Case) -> list[Event]:
    found: list[Event] = []
    while page := case.client.events(case.id, after=found[-1].seq if found else 0).data:
        found += page
    return found


def _unknown(pages: Sequence[Event]) -> int:
    return sum(isinstance(event.data, ToolUnknown | ExecLost) for event in pages)


def _wrong(numbers: Sequence[int]) -> int:
    """How many numbers are missing, double or out of order."""
    return sum(number != before + 1 for before, number in zip([0, *numbers], numbers, strict=False))


def _marks(case: Case, result: TaskResult) -> list[str]:
    """The lines of the file that the executor kept, as a client downloads it (which compares the digest)."""
    saved = [artifact for artifact in result.artifacts if artifact.path == MARKS]
    if not saved:
        return []
    path = case.client.download(saved[0].id, case.stack.data.root.parent / f"{case.id}.txt")
    return path.read_text(encoding="utf-8").split()


def _asked_once(case: Case) -> None:
    """The model was asked for each reply once, and at most once more for each kill."""
    asked = Counter(_replayed(case))
    assert set(asked) >= {entry.call for entry in case.play.entries()}
    assert asked.total() <= len(case.play.entries()) + len(case.kills), asked


def _replayed(case: Case) -> Iterator[str]:
    """Each call that the replay engine has answered for this recording, from its log."""
    words = f"replaying {case.play.name} "
    for line in case.stack.data.log("replay").read_text(encoding="utf-8", errors="replace").splitlines():
        if words in line:  # a line may be cut where its writer was killed
            yield str(json.loads(line)["message"]).removeprefix(words)


def _nothing_runs(case: Case) -> None:
    """No sandbox of the task and no process of its commands is left."""
    live = case.stack.data.sandboxes / "sandboxes"
    assert [path for path in live.glob("*/meta.json") if case.id in path.read_text(encoding="utf-8")] == []
    assert _processes(case.play.name.encode()) == []


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
