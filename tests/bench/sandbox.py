"""Sandboxes against what an engine gives without us: claims, commands, starts, density, what is left after a crash.

python -m tests.bench sandbox [--only PART ...] [--tiny]

Root, with an engine of its own (apt install docker.io runsc iproute2). Parts: claim exec start density leaks.
`--tiny` only shows that everything still runs. Snapshots have an area of their own: `make bench NAME=snapshot`.
"""

import argparse
import asyncio
import sys

from services.stack.layout import default_data_dir
from tests.bench.sandboxes import claim, density, execs, leaks, start
from tests.bench.sandboxes.size import TINY, Size
from tests.support.engine import Engine

PARTS = {
    "claim": claim.bench,
    "exec": execs.bench,
    "start": start.bench,
    "density": density.bench,
    "leaks": leaks.bench,
}


async def run(size: Size, only: list[str]) -> None:
    """The figures."""
    template = default_data_dir() / "template"
    with Engine() as engine:
        for part in only:
            await PARTS[part](engine, template, size)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="sandbox", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="some of the parts")
    parser.add_argument("--tiny", action="store_true", help="hardly any work")
    chosen = parser.parse_args()
    asyncio.run(run(TINY if chosen.tiny else Size(), chosen.only))
    return 0


if __name__ == "__main__":
    sys.exit(main())
