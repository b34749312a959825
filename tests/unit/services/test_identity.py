"""Whether a process is gone can be told, and is never guessed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from services import identity
from services.stack.layout import CHECKOUT

_TELL = "from services import identity; print(identity.mine(), flush=True); import time; time.sleep(60)"


@pytest.fixture
def other() -> Iterator[tuple["subprocess.Popen[str]", str]]:
    process = subprocess.Popen([sys.executable, "-c", _TELL], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    yield process, process.stdout.readline().strip()
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_living_process_is_not_gone_even_if_it_does_nothing(other: tuple["subprocess.Popen[str]", str]) -> None:
    process, name = other
    assert name.startswith(f"{process.pid}@")
    assert not identity.gone(name)
    process.send_signal(signal.SIGSTOP)
    assert not identity.gone(name)


def test_a_killed_process_is_gone_before_anybody_has_reaped_it(other: tuple["subprocess.Popen[str]", str]) -> None:
    process, name = other
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identity.gone(name)
    process.wait()
    assert identity.gone(name)


def test_another_process_with_its_number_is_not_it() -> None:
    who, started, world = identity.mine().split("/")
    pid = who.partition("@")[0]
    assert not identity.gone(f"{pid}@anywhere/{started}/{world}")
    assert identity.gone(f"{pid}@anywhere/{int(started) - 1}/{world}")


@pytest.mark.parametrize("name", ["", "1@box", "999999@box/5/00000000-0000.1", "999999@box/5", "nonsense/1/2"])
def test_of_what_cannot_be_seen_nothing_is_said(name: str) -> None:
    assert not identity.gone(name)
