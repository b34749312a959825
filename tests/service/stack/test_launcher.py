"""The launcher's own life and death. Each test has servers of its own."""

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import files
from pathlib import Path

import pytest

from services.stack.layout import CHECKOUT
from tests.support.stack import Stack, new_data_dir

ONLY_SERVERS = ("--port", "0", "--only", "servers")

pytestmark = pytest.mark.timeout(300)  # several starts on a busy machine take their time


@pytest.fixture
def make() -> Iterator[Callable[..., Stack]]:
    made: list[Stack] = []

    def new(**options: object) -> Stack:
        made.append(Stack(new_data_dir(), arguments=ONLY_SERVERS, **options))  # type: ignore[arg-type]
        return made[-1]

    yield new
    for one in made:
        one.remove()


def test_kill_9_leaves_nothing_and_the_next_start_works(make: Callable[..., Stack]) -> None:
    """Four times at once one after the other: the dead postmaster is often not reaped yet when the new one starts."""
    stack = make().start()
    ports = stack.ports
    for _ in range(4):
        assert stack.process
        stack.process.kill()
        stack.process.wait()
        stack.assert_no_leftovers(3.0)
        stack.start()
    assert stack.ports == ports, "ports stay"
    assert stack.end() == 0
    stack.assert_no_leftovers(1.0)
    assert "Stopped." in stack.said()
    assert stack.data.run().launcher_pid is None


@pytest.mark.parametrize("moment", [0.05, 0.15, 0.3])
def test_killed_while_temporal_makes_its_database(make: Callable[..., Stack], moment: float) -> None:
    stack = make()
    stack.launch()
    new = stack.data.temporal / "init.db"
    stack.wait(lambda: new.exists() or (stack.data.temporal / "temporal.db").exists(), 30, "a database is being made")
    time.sleep(moment)
    assert stack.process
    stack.process.kill()
    stack.process.wait()
    stack.start()
    assert (stack.data.temporal / "temporal.db").exists()
    assert not new.exists()
    stack.end()


def test_a_second_ctrl_c_hurries(make: Callable[..., Stack]) -> None:
    stack = make().start()
    assert stack.process
    stack.kill("seaweedfs", signal.SIGSTOP)  # it will not stop by itself
    stack.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    begun = time.monotonic()
    stack.process.send_signal(signal.SIGINT)
    assert stack.process.wait(10) == 0
    assert time.monotonic() - begun < 3
    stack.assert_no_leftovers(1.0)


def test_stopped_in_the_middle_of_a_start(make: Callable[..., Stack]) -> None:
    stack = make()
    stack.launch()
    stack.wait(lambda: stack.data.lock_holder() is not None, 20, "it has begun")
    time.sleep(0.4)
    assert stack.end() == 0
    stack.assert_no_leftovers(1.0)
    assert "Traceback" not in stack.said()
    stack.start()
    assert stack.end() == 0


def test_in_the_background(make: Callable[..., Stack]) -> None:
    root = make().data.root
    where = ["--data-dir", str(root)]
    up = _longhaul("up", *where, "--port", "0", "--only", "servers", "--detach")
    assert up.returncode == 0, up.stderr
    assert _longhaul("status", *where).returncode == 0
    again = _longhaul("up", *where, "--port", "0", "--detach")
    assert again.returncode == 3
    assert "already runs" in again.stderr
    down = _longhaul("down", *where)
    assert down.returncode == 0
    assert "Stopped." in down.stdout
    assert _longhaul("status", *where).returncode == 1
    assert "Nothing runs" in _longhaul("down", *where).stdout


def test_as_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("not root: every other test here is this test")
    user = pwd.getpwnam("nobody").pw_uid
    root = new_data_dir()
    os.chown(root.parent, user, user)
    python, env = _python_for(user)
    stack = Stack(root, arguments=ONLY_SERVERS, user=user, python=python, env=env | {"HOME": str(root.parent)})
    try:
        stack.start()
        pids = [unit.pid for unit in stack.report().units]
        assert {os.stat(f"/proc/{pid}").st_uid for pid in pids} == {user}
        assert stack.end() == 0
        stack.assert_no_leftovers(2.0)
    finally:
        stack.remove()


def _python_for(user: int) -> tuple[str, dict[str, str]]:
    """An interpreter with our packages that this user may run: ours, or the system's with ours on its path."""
    package = next(iter(files("pydantic") or ())).locate()
    site = str(Path(str(package)).parent.parent)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    borrowed = {"PYTHONPATH": os.pathsep.join((str(CHECKOUT), site)), "PYTHONDONTWRITEBYTECODE": "1"}
    for python, env in ((sys.executable, {}), (f"/usr/bin/{version}", borrowed)):
        try:
            done = subprocess.run(
                [python, "-c", "import services.stack.launcher"],
                cwd=CHECKOUT,
                env={"PATH": os.environ["PATH"], **env},
                user=user,
                group=user,
                extra_groups=[],
                capture_output=True,
                check=False,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return python, env
    pytest.skip("no interpreter that user nobody may run: the checkout or its Python lies in a private directory")


def _longhaul(*arguments: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "services.cli.main", *arguments]
    return subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=90, check=False)
