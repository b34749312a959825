"""``make attacks``: every attack on every backend that works here; a line for each, then the line ATTACKS."""

import argparse
import asyncio
import os
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from services.stack.layout import default_data_dir
from tests.attacks.backends import Backend, started
from tests.attacks.catalogue import ATTACKS
from tests.attacks.run import ALLOWED, Surroundings, attack
from tests.attacks.way_out import WAY_OUT
from tests.contract.sandbox.runner import RunnerProcess, identities
from tests.support.engine import NEEDS, Engine, missing

BACKENDS = ("namespace", "docker", "gvisor")


async def _run(wanted: list[str], words: list[str]) -> int:
    counted: Counter[str] = Counter()
    async with AsyncExitStack() as ends:
        around = ends.enter_context(Surroundings())
        backends = await _backends(wanted, around, ends)
        attacks = [one for one in (*ATTACKS, *WAY_OUT) if not words or any(word in one.name for word in words)]
        for backend in backends:
            print(f"\n{backend.name}")
            for one in attacks:
                outcome = await attack(one, backend, around)
                counted[outcome.verdict] += 1
                print(f"  {outcome.verdict:<20} {one.name}{outcome.said}", flush=True)
    names = " ".join(f"{key}={counted[key]}" for key in ("held", "escaped", "cannot-enforce-here", "not-meant"))
    print(f"\nATTACKS total={sum(counted.values())} {names} backends={','.join(b.name for b in backends)}")
    return 1 if counted["escaped"] or not counted["held"] else 0


async def _backends(wanted: list[str], around: Surroundings, ends: AsyncExitStack) -> list[Backend]:
    template = Path(os.environ.get("LONGHAUL_RUNNER_TEMPLATE_DIR") or default_data_dir() / "template")
    names, engine = wanted or list(BACKENDS), None
    if names != ["namespace"]:
        if missing():
            print(f"docker, gvisor: not here. {NEEDS}")
            names = [name for name in names if name == "namespace"]
        else:
            engine = ends.enter_context(Engine())
    places = [f"{name}/{identity}" for name in names for identity in identities(name)]
    env = {"LH_CANARY": around.canary, "LONGHAUL_RUNNER_PRIVATE_HOSTS": f"{ALLOWED}=127.0.0.1"}
    return [await started(RunnerProcess(place, template, engine, env=env), ends) for place in places]


def main() -> int:
    """Entry."""
    parser = argparse.ArgumentParser(prog="make attacks ARGS=…", description=__doc__)
    parser.add_argument("--backend", action="append", default=[], choices=BACKENDS)
    parser.add_argument("words", nargs="*", help="only attacks whose name holds one of these")
    told = parser.parse_args()
    return asyncio.run(_run(told.backend, told.words))


if __name__ == "__main__":
    sys.exit(main())
