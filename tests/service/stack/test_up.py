"""Starting a stack where something is missing, or several at once: who waits, who is told what, and what stays."""

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from services.cli.starting import Launching, wait_until_up
from services.sandbox.supervisor.build import program
from services.sandbox.template import Template
from services.stack.errors import StackError
from services.stack.layout import CHECKOUT, DataDir
from services.stack.ours import said_ready
from services.stack.probe import Answer
from services.stack.status import is_ready
from services.stack.unit import NotReady
from tests.support.stack import Stack, new_data_dir, processes_of

ONLY_SERVERS = ("--port", "0", "--only", "servers")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def data() -> Iterator[DataDir]:
    root = new_data_dir()
    yield DataDir(root)
    longhaul("down", "--data-dir", str(root))
    shutil.rmtree(root.parent, ignore_errors=True)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """One with its packages, from which the supervisor went missing."""
    venv = Template(Stack(Path("/nowhere/at/all")).template).venv()
    assert venv
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "current").symlink_to(venv.parent)
    return tmp_path / "template"


def longhaul(*arguments: str, env: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "services.cli.main", *arguments]
    return subprocess.run(
        argv, cwd=CHECKOUT, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("detach", [(), ("--detach",)])
def test_without_the_supervisor_nothing_is_started(data: DataDir, template: Path, detach: tuple[str, ...]) -> None:
    env = {"LONGHAUL_RUNNER_TEMPLATE_DIR": str(template)}
    done = longhaul("up", "--data-dir", str(data.root), "--port", "0", *detach, env=env)
    assert done.returncode == 3
    assert f"The sandboxes' supervisor is missing from {template}: run `make setup`." in done.stderr
    assert not data.root.exists(), "nothing is left behind"
    demo = longhaul("demo", "--data-dir", str(data.root), env=env)
    assert (demo.returncode, "supervisor is missing" in demo.stderr, data.root.exists()) == (3, True, False)
    found = longhaul("doctor", "--data-dir", str(data.root), "--port", "0", env=env)
    assert found.returncode == 1
    assert f"FAIL  supervisor: missing: {program(template)}" in found.stdout


def test_without_a_template_nothing_is_started(data: DataDir, tmp_path: Path) -> None:
    env = {"LONGHAUL_RUNNER_TEMPLATE_DIR": str(tmp_path)}
    done = longhaul("up", "--data-dir", str(data.root), "--port", "0", env=env)
    assert (done.returncode, "run `make setup`" in done.stderr) == (3, True)


def test_a_copy_of_the_supervisor_is_as_good(data: DataDir, template: Path) -> None:
    copy = data.sandboxes / "shared" / "supervisor" / program(template).name
    copy.parent.mkdir(parents=True)
    copy.touch()
    env = {"LONGHAUL_RUNNER_TEMPLATE_DIR": str(template)}
    found = longhaul("doctor", "--data-dir", str(data.root), "--port", "0", env=env).stdout
    assert f"ok    supervisor: {copy}" in found


def test_what_a_process_says_of_itself_is_heard() -> None:
    assert said_ready(Answer(200, b""))
    assert not said_ready(Answer(0, b""))
    assert not said_ready(Answer(502, b"<html>"))
    for body, why in (
        (b'{"status": "unavailable", "detail": "no template at x"}', "no template at x"),
        (b'{"status": "unavailable", "servers": {"nats": "unavailable", "s3": "ok"}}', "it waits for nats"),
    ):
        with pytest.raises(NotReady, match=why):
            said_ready(Answer(503, body))


def test_who_waits_gives_up_and_names_what_is_not_ready(data: DataDir) -> None:
    launching = Launching(data, ONLY_SERVERS)
    try:
        deadline = time.monotonic() + 60
        while data.lock_holder() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with pytest.raises(StackError, match=r"was not up after 0 s. Not ready:\n  \w+"):
            wait_until_up(data, os.getpid(), lambda: True, 0.0)
        assert launching.wait() is None
    finally:
        launching.process.terminate()
        launching.process.wait(60)


def test_of_two_at_once_one_starts_and_the_other_says_why_it_did_not(data: DataDir) -> None:
    where = ["--data-dir", str(data.root), *ONLY_SERVERS, "--detach"]
    done: list[subprocess.CompletedProcess[str]] = []
    starts = [threading.Thread(target=lambda: done.append(longhaul("up", *where))) for _ in range(2)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    lost, won = sorted(done, key=lambda one: -one.returncode)
    assert (won.returncode, lost.returncode) == (0, 3), (won, lost)
    assert "Longhaul stack already runs" in lost.stderr
    assert "The four servers are up" in won.stdout


def test_an_owned_stack_ends_with_its_owner_unless_it_was_left(data: DataDir) -> None:
    for word in (b"", b"stay"):
        heard, pipe = os.pipe()
        launching = Launching(data, (*ONLY_SERVERS, "--owner-fd", str(heard)), (heard,))
        os.close(heard)
        assert launching.wait() is None, launching.said()
        os.write(pipe, word)
        os.close(pipe)
        if not word:
            assert launching.process.wait(60) == 0
        else:
            time.sleep(3.0)
            assert is_ready(data, launching.process.pid)
            assert longhaul("down", "--data-dir", str(data.root)).returncode == 0
            launching.process.wait(10)
        assert not processes_of("no such mark", data.root)


def test_a_refusal_leaves_a_new_place_as_it_was(data: DataDir) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for detach in ((), ("--detach",)):
            done = longhaul("up", "--data-dir", str(data.root), "--port", str(port), *detach)
            assert (done.returncode, f"Port {port}" in done.stderr) == (3, True), done
            assert not data.root.exists()
