"""A command's round trip."""

import asyncio
from pathlib import Path

from tests.bench.sandboxes import engine as bare
from tests.bench.sandboxes.measure import Spread, calls
from tests.bench.sandboxes.runners import claimed, ran, runner
from tests.bench.sandboxes.size import Size
from tests.bench.turns.report import figure, progress, target
from tests.support.engine import Engine

AGAINST = "docker_exec_through_docker_py"


async def bench(engine: Engine, template: Path, size: Size) -> None:
    """`true`, in a sandbox that has run one before."""
    progress("exec: docker exec")
    theirs = await asyncio.to_thread(bare.execs, engine, size.engine)
    print(f"  {AGAINST}: {theirs}")
    for name, backend in (("sandbox.exec_p50", None), ("sandbox.exec_docker_p50", "docker")):
        progress(f"exec: {backend or 'namespace'}")
        ours = await _ours(engine if backend else None, template, size)
        ratio = figure(name, ours.p50, "ms", AGAINST, theirs.p50)
        target("p50 <= 2 ms and 1/20 of docker exec", ours.p50 <= 2 and ratio <= 0.05)
        print(f"  {ours}")


async def _ours(engine: Engine | None, template: Path, size: Size) -> Spread:
    async with runner(template, 0, engine) as (_, client):
        name = await claimed(client)
        for _ in range(5):
            await ran(client, name)
        found = await calls(size.execs, lambda _: ran(client, name))
        await client.destroy(name)
    return found
