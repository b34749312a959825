"""Set-ups of several checkouts in one template: who waits says so, and none removes what another uses."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.sandbox.supervisor.build import KEPT, UNUSED_S, _prune, program
from services.stack.layout import CHECKOUT


def test_who_waits_for_another_says_so(tmp_path: Path) -> None:
    program(tmp_path).touch()
    with open(tmp_path / "supervisor.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        argv = [sys.executable, "-m", "services.sandbox.supervisor.build", str(tmp_path), "--here"]
        with subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as build:
            assert build.stderr
            assert build.stderr.readline() == "Waiting for another set-up of the template …\n"
            fcntl.flock(held, fcntl.LOCK_UN)
            assert build.communicate(timeout=60) == (f"{program(tmp_path)}\n", "")
    assert build.returncode == 0


@pytest.mark.parametrize(("age_s", "left"), [(UNUSED_S - 60, KEPT + 4), (UNUSED_S + 60, KEPT)])
def test_only_what_nobody_touched_for_long_is_removed(tmp_path: Path, age_s: float, left: int) -> None:
    for number in range(KEPT + 4):
        path = tmp_path / f"supervisor-{number}"
        path.touch()
        os.utime(path, (time.time() - age_s, time.time() - age_s - number))
    _prune(tmp_path)
    assert len(list(tmp_path.iterdir())) == left
