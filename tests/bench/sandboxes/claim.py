"""A sandbox that was ready before it was asked for."""

from pathlib import Path

from tests.bench.sandboxes.measure import calls
from tests.bench.sandboxes.runners import claimed, first_command, runner
from tests.bench.sandboxes.size import Size
from tests.bench.turns.report import figure, progress, target
from tests.support.engine import Engine

POOL, PAUSE_S = 8, 0.2


async def bench(engine: Engine, template: Path, size: Size) -> None:
    """The claim, and the claim with its first command, at a pace that the pool can follow."""
    progress("claim: namespace")
    async with runner(template, POOL) as (_, client):
        await client.destroy(await first_command(client))
        made: list[str] = []

        async def claim(_: int) -> None:
            made.append(await claimed(client))

        async def whole(_: int) -> None:
            made.append(await first_command(client))

        claims = await calls(size.claims, claim, PAUSE_S)
        firsts = await calls(size.claims, whole, PAUSE_S)
        state = await client.pool()
        for name in made:
            await client.destroy(name)
    figure("sandbox.claim_p50_ms", claims.p50, "ms")
    target("p50 <= 3 ms and p95 <= 10 ms at the runner, over HTTP", claims.p50 <= 3 and claims.p95 <= 10)
    print(f"  {claims}; with the first command {firsts}; warm {state.warm_claims}, cold {state.cold_claims}")
