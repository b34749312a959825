"""What a turn costs: against bare Temporal activities and LangGraph on the same servers, in ms, and how it grows.

python -m tests.bench turn [--data-dir DIR] [--only PART ...] [--tiny]

DIR is a running stack's; else one is started and removed. Parts: latency cost langgraph growth. `--tiny` only shows
that everything still runs.
"""

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from services.settings import Settings
from services.stack.layout import CHECKOUT, DataDir
from tests.bench.turns import against_langgraph, against_temporal, growth, latency
from tests.bench.turns.report import TINY, Size
from tests.support.stack import Stack, new_data_dir
from tests.support.team import connect
from tests.support.turns import Parts

PARTS = ("latency", "cost", "langgraph", "growth")


async def run(settings: Settings, size: Size, only: Sequence[str]) -> None:
    """The figures."""
    async with Parts(settings) as parts:
        client = await connect(settings, "bench-" + secrets.token_hex(4))
        if "latency" in only:
            await latency.bench(parts, size)
        if "cost" in only:
            await against_temporal.bench(parts, client, size)
        if "langgraph" in only:
            await against_langgraph.bench(parts, client, size, CHECKOUT / "build")
        if "growth" in only:
            await growth.bench(parts, client, size)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="turn", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="a running stack's directory")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="some of the parts")
    parser.add_argument("--tiny", action="store_true", help="hardly any work")
    chosen = parser.parse_args()
    stack = Stack(chosen.data_dir or new_data_dir())
    if chosen.data_dir:
        stack.data = DataDir(chosen.data_dir)
    else:
        stack.start()
    try:
        # on the loop that a worker has
        uvloop.run(run(stack.settings("worker"), TINY if chosen.tiny else Size(), chosen.only))
    finally:
        if not chosen.data_dir:
            stack.end()
            stack.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
