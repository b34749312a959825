"""Many tasks of several tenants at once, on a stack of its own: all finish, by turns, in flat memory, with a quick API?

python -m tests.stress [--tasks 200] [--tenants 3] [--running 20] [--turns 2] [--parallel 1] [--minutes 15] [--keep]
"""

import argparse
import asyncio
import sys
from dataclasses import fields

from tests.stress.report import judged
from tests.stress.run import run
from tests.stress.size import Size
from tests.support.stack import Stack, new_data_dir


def main() -> int:
    """The exit code: 1 where something does not hold."""
    parser = argparse.ArgumentParser(prog="stress", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for field in fields(Size):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    parser.add_argument("--keep", action="store_true", help="leave the stack's directory")
    chosen = vars(parser.parse_args())
    keep = chosen.pop("keep")
    size = Size(**chosen)
    stack = Stack(new_data_dir(), env={"LONGHAUL_RUNNING_TASKS": str(size.running)})
    try:
        stack.start()
        record = asyncio.run(run(stack, size, lambda line: print(line, flush=True)))
    finally:
        stack.end()
        if keep:
            print(f"left behind: {stack.data.root}", file=sys.stderr)
        else:
            stack.remove()
    verdict = judged(record, size)
    print("\n".join([*verdict.lines, *(f"NOT MET: {problem}" for problem in verdict.problems), verdict.line]))
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
