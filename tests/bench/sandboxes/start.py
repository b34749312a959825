"""A start from nothing."""

import asyncio
from pathlib import Path

from tests.bench.sandboxes import engine as bare
from tests.bench.sandboxes.measure import calls, rate
from tests.bench.sandboxes.runners import first_command, runner
from tests.bench.sandboxes.size import Size
from tests.bench.turns.report import figure, progress, target
from tests.support.engine import Engine

WIDTH = 4


async def bench(engine: Engine, template: Path, size: Size) -> None:
    """From nothing to the end of the first command, one by one and side by side."""
    progress("start: namespace")
    made: list[str] = []
    async with runner(template, 0) as (_, client):

        async def one(_: int) -> None:
            made.append(await first_command(client))

        cold = await calls(size.starts, one)
        figure("sandbox.start_namespace_ms", cold.p50, "ms")
        target("a namespace sandbox from nothing to its first command in 20 ms", cold.p50 <= 20)
        print(f"  {cold}")
        a_second = await rate(size.burst, WIDTH, one)
        figure("sandbox.starts_a_second", a_second, "starts_per_s")
        target("150 a second", a_second >= 150)
        for name in made:
            await client.destroy(name)
    progress("start: docker")
    theirs = await asyncio.to_thread(bare.starts, engine, size.engine)
    runs = await asyncio.to_thread(bare.runs, engine, size.engine)
    async with runner(template, 0, engine) as (_, client):
        names: list[str] = []

        async def container(_: int) -> None:
            names.append(await first_command(client))

        ours = await calls(size.engine, container)
        for name in names:
            await client.destroy(name)
    ratio = figure("sandbox.start_docker_ms", ours.p50, "ms", "bare_create_and_start", theirs.p50)
    target("1.3 of bare create and start", ratio <= 1.3)
    print(f"  {ours}; docker run --rm true: {runs}")
