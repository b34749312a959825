"""The benchmark of turns still runs: each of its parts that needs no network, with hardly any work."""

import math
import re
import subprocess
import sys

from services.stack.layout import CHECKOUT
from tests.support.stack import Stack

LINE = re.compile(r"BENCH (\S+) ours=(\S+) unit=\S+ against=\S+ theirs=(\S+) ratio=(\S+)")
ALONE = ("turn.latency_ms", "turn.history_500_mb")
COMPARED = ("turn.cost", "turn.growth_2000_over_20")


def test_every_figure_is_printed(stack: Stack) -> None:
    argv = [sys.executable, "-m", "tests.bench", "turn", "--tiny", "--data-dir", str(stack.data.root)]
    argv += ["--only", "latency", "cost", "growth"]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = {name: tuple(map(float, figures)) for name, *figures in LINE.findall(done.stdout)}
    assert set(printed) == {*ALONE, *COMPARED}, done.stdout
    for name, (ours, theirs, ratio) in printed.items():
        assert 0 < ours < math.inf, name
        if name in COMPARED:
            assert math.isclose(ratio, ours / theirs, rel_tol=0.05), name
    assert len(re.findall(r"^  target .*: (met|NOT MET) ", done.stdout, re.MULTILINE)) == 7, done.stdout
