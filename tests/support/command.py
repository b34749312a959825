"""The `longhaul` command as a user runs it, on the stack of the tests."""

import os
import subprocess
import sys

from services.stack.layout import CHECKOUT
from tests.support.stack import Stack


def command(stack: Stack, *arguments: str, within_s: float = 200.0) -> "subprocess.CompletedProcess[str]":
    """Run it to its end, without a terminal."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LONGHAUL_")}
    env |= {"LONGHAUL_DATA_DIR": str(stack.data.root), "TERM": "dumb"}
    argv = [sys.executable, "-m", "services.cli.main", *arguments]
    return subprocess.run(argv, cwd=CHECKOUT, env=env, capture_output=True, text=True, check=False, timeout=within_s)
