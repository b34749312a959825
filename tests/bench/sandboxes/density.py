"""What sandboxes cost that are alive and do nothing."""

import asyncio
from pathlib import Path

from tests.bench.sandboxes.measure import held_kb, pids_with, rate
from tests.bench.sandboxes.runners import first_command, runner
from tests.bench.sandboxes.size import Size
from tests.bench.turns.report import figure, progress, target
from tests.support.engine import Engine

WIDTH, QUIET_S = 4, 1.0


async def bench(engine: Engine, template: Path, size: Size) -> None:
    """Memory of our processes in each, proportional: 300 of bubblewrap, 100 of docker."""
    for name, count, most, backend, words in (
        ("sandbox.namespace_alive_mib", size.alive, 1.0, None, (("--outside-pid-ns",),)),
        ("sandbox.docker_alive_mib", size.containers, 4.0, engine, (("--outside-pid-ns",), ("containerd-shim",))),
    ):
        progress(f"density: {count} of {'docker' if backend else 'namespace'}")
        async with runner(template, 0, backend) as (_, client):

            async def one(_: int, client=client) -> None:  # type: ignore[no-untyped-def]
                await first_command(client)

            await rate(count, WIDTH, one)
            await asyncio.sleep(QUIET_S)
            pids = sorted({pid for each in words for pid in pids_with(*each)})
            each = held_kb(pids) / 1024 / count
            for sandbox in await client.list_sandboxes():
                await client.destroy(sandbox.id)
        figure(name, each, "MiB")
        target(f"{count} alive at {most:.0f} MiB of ours each", each <= most)
        print(f"  {len(pids)} processes")
