"""What a command says where it cannot do what was asked: what is wrong, and what to do."""

import os
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from services.cli import exits
from services.cli.connect import Access
from services.cli.demo.progress import Progress, interrupted
from services.client import Unreachable
from services.client.patience import Patience
from services.stack.layout import CHECKOUT
from services.stack.program import program, runnable

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def longhaul(*arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LONGHAUL_")} | env
    argv = [sys.executable, "-m", "services.cli.main", *arguments]
    return subprocess.run(argv, cwd=CHECKOUT, env=kept, capture_output=True, text=True, timeout=150, check=False)


def test_an_address_that_does_not_answer_is_named_while_it_is_tried() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        env = {**os.environ, "LONGHAUL_URL": url, "LONGHAUL_API_KEY": "lh_x"}
        argv = [sys.executable, "-m", "services.cli.main", "list"]
        with subprocess.Popen(argv, cwd=CHECKOUT, env=env, stderr=subprocess.PIPE, text=True) as ran:
            assert ran.stderr
            first = ran.stderr.readline()
            ran.kill()
    assert first == f"No answer from {url} yet; it is tried again and again …\n"


@pytest.mark.parametrize(("url", "says"), [("http://h:1", "LONGHAUL_URL is set to http://h:1"), ("", "up` starts")])
def test_what_may_be_wrong_with_it(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LONGHAUL_URL", url)
    with pytest.raises(typer.Exit) as ended, exits.guarded():
        raise Unreachable("GET /v1/tasks was given up after 56 s")
    said = capsys.readouterr().err
    assert (ended.value.exit_code, says in said, "longhaul up" in said) == (4, True, not url)


def test_whoever_waits_is_told_once() -> None:
    told: list[int] = []
    patience = Patience(60.0, lambda: told.append(1))
    patience.pause(None, "it")
    assert not told, "not at once"
    patience._since = (patience._since or 0.0) - 3.0
    for _ in range(3):
        patience.pause(None, "it")
    assert told == [1]


def test_a_recording_that_is_not_there(tmp_path: Path) -> None:
    ran = longhaul("replay", str(tmp_path / "nope.json"))
    assert (ran.returncode, "Errno" in ran.stderr) == (2, False)
    assert f"There is no file {tmp_path}/nope.json." in ran.stderr
    assert "longhaul record TASK` makes one" in ran.stderr


def test_a_stack_elsewhere_is_never_said_to_be_stopped() -> None:
    assert not Access("http://127.0.0.1:9", "lh_x").stopped()


def test_a_hint_can_be_copied_where_the_command_is_not_on_the_path() -> None:
    code = "from services.stack.program import runnable; print(runnable('`longhaul up`, /x/longhaul up, longhaul is'))"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, env={"PATH": "/nowhere"}, capture_output=True, text=True, check=True
    ).stdout
    program = Path(sys.executable).with_name("longhaul")
    assert said == f"`{program} up`, /x/longhaul up, {program} is\n"
    assert "longhaul up" in runnable("longhaul up")


def test_make_says_how_to_list_the_targets() -> None:
    ran = subprocess.run(["make", "stauts"], cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert "There is no target 'stauts': `make help` lists those there are." in ran.stderr


@pytest.mark.parametrize(
    ("ended", "own", "others", "says", "never"),
    [
        ({"a", "b"}, NOW, False, "All tasks had ended; their data stays.", "longhaul"),
        ({"a"}, NOW, False, "longhaul up, then longhaul watch b", "watch a"),
        ({"a"}, NOW, True, "The task goes on.", "is stopped"),
        (set(), None, False, "longhaul cancel a", "is stopped"),
    ],
)
def test_an_interrupted_demo_tells_of_what_is_not_over(
    ended: set[str], own: datetime | None, others: bool, says: str, never: str
) -> None:
    told = interrupted(Progress({"one": "a", "two": "b"}, own, ended, others)).replace(program(), "longhaul")
    assert (says in told, never in told) == (True, False), told
