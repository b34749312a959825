"""Record the demos for `test_recordings.py`: ``make recordings``. Has a stack of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

from services.stack.layout import CHECKOUT
from tests.support.stack import Stack, new_data_dir

RECORDINGS = Path(__file__).parent / "recordings"


def longhaul(data: Path, *arguments: str) -> str:
    """What a command prints; it has to succeed."""
    argv = [sys.executable, "-m", "services.cli.main", *arguments, "--data-dir", str(data)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("LONGHAUL_")}
    return subprocess.run(argv, cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    """Record."""
    stack = Stack(new_data_dir())
    try:
        stack.start()
        data = stack.data.root
        for task in json.loads(longhaul(data, "demo", "--json"))["tasks"]:
            path = RECORDINGS / f"{task['name']}.json"
            print(longhaul(data, "record", task["id"], "--name", f"{task['name']}-recorded", "-o", str(path)), end="")
    finally:
        stack.end()
        stack.remove()


if __name__ == "__main__":
    main()
