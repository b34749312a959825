"""One run: submit, watch until all have ended or the time is over, and gather what there is to judge."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from services.store.database import Database
from tests.stress import footprint, rows
from tests.stress.footprint import Sample
from tests.stress.late import late
from tests.stress.load import Load
from tests.stress.rows import Outcome
from tests.stress.size import Size
from tests.support.stack import Stack

LOOK_EVERY_S = 2.0
SETTLE_S = 3.0
"""After the last end: what is published or closed a moment later was not lost and is no leak."""

Tell = Callable[[str], None]


@dataclass
class Record:
    """What a run left to judge. `running` is the most that the queue itself was seen to have let in at once."""

    load: Load
    outcome: Outcome
    seconds: float
    running: int = 0
    samples: list[Sample] = field(default_factory=list)
    log_errors: list[str] = field(default_factory=list)
    late: dict[str, int] = field(default_factory=dict)


async def run(stack: Stack, size: Size, tell: Tell) -> Record:
    """Do it, on a running stack."""
    db = Database(stack.settings("worker").pg_url, pool_size=4)
    load = Load(size, stack.data.run().api_url)
    try:
        await load.open(db)
        return await _run(stack, size, db, load, tell)
    finally:
        await load.close()
        await db.close()


async def _run(stack: Stack, size: Size, db: Database, load: Load, tell: Tell) -> Record:
    begun, running = time.monotonic(), 0
    samples = [footprint.sample(stack, 0, False)]
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(load.read())
        submitting = group.create_task(load.submit())
        while time.monotonic() < begun + size.minutes * 60:
            await asyncio.sleep(LOOK_EVERY_S)
            at = await rows.now(db, load.ids)
            running = max(running, at.running)
            samples.append(await asyncio.to_thread(footprint.sample, stack, at.done, at.running >= size.running))
            tell(_progress(begun, at, load, samples[-1], size))
            if submitting.done() and at.done == size.tasks:
                break
        reading.cancel()
        submitting.cancel()
    seconds = time.monotonic() - begun
    await asyncio.sleep(SETTLE_S)
    samples.append(footprint.sample(stack, at.done, False))
    came_late = await asyncio.to_thread(late, stack.ports["temporal_metrics"])
    return Record(load, await rows.outcome(db, load.ids), seconds, running, samples, _errors(stack), came_late)


def _progress(begun: float, at: rows.Now, load: Load, sample: Sample, size: Size) -> str:
    files = sum(held.files for held in sample.held.values())
    memory = ", ".join(f"{name} {held.pss / footprint.MB:.0f}" for name, held in sample.held.items())
    return (
        f"{time.monotonic() - begun:5.0f} s: {len(load.ids)} submitted, {at.running} have a place, "
        f"{at.done} of {size.tasks} ended; {files} files; MB: {memory}"
    )


def _errors(stack: Stack) -> list[str]:
    """What our processes logged as errors."""
    found = []
    for log in sorted(stack.data.log("api").parent.glob("*.log")):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        found += [f"{log.stem}: {line}" for line in lines if '"level": "error"' in line]
    return found
