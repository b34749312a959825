"""What an exec costs; printed, not judged: `pytest -s tests/contract/supervisor/test_speed.py`."""

import time

from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.messages import Order
from tests.contract.supervisor.box import PATH

ROUNDS = 300


async def test_round_trip_of_true(client: Supervisor) -> None:
    spent = []
    for n in range(ROUNDS):
        begun = time.perf_counter()
        command = await client.start(Order(f"e{n}", ("/usr/bin/true",), env=PATH, window=0))
        assert (await command.closed()).exit_code == 0
        spent.append((time.perf_counter() - begun) * 1000)
    pings = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        await client.ping()
        pings.append((time.perf_counter() - begun) * 1000)
    for name, found in (("exec true", sorted(spent)), ("ping", sorted(pings))):
        print(
            f"\n{name}: p50 {found[ROUNDS // 2]:.2f} ms, p95 {found[ROUNDS * 95 // 100]:.2f} ms, min {found[0]:.2f} ms"
        )
