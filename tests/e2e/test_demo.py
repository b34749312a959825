"""The code repair on real parts: a task over REST, its events and deltas, its artifacts in S3, the command."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.contracts.artifact import BlobRef
from agents.contracts.task import StopReason, TaskStatus
from services.cli.demo.catalogue import chosen
from services.client import Client
from services.objects.s3 import S3Objects
from services.settings import Settings
from services.stack.layout import CHECKOUT
from services.stack.program import program
from tests.conftest import Tenant
from tests.support.command import command
from tests.support.follow import Followed
from tests.support.stack import Stack, new_data_dir

(DEMO,) = chosen("code_repair")
(CHECK,) = DEMO.checks
WITHIN_S = 150.0
LONGHAUL = program()

pytestmark = pytest.mark.timeout(300)


def test_the_package_fails_as_the_demo_says(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(DEMO.workspace)]
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(DEMO.workspace)}
    ran = subprocess.run(argv, cwd=DEMO.workspace, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert re.search(r"3 failed, \d+ passed", ran.stdout)


def submit(client: Client, **over: Any) -> str:
    return client.submit(DEMO.spec(client).model_copy(update=over)).id


async def test_a_team_repairs_the_package(tenant: Tenant, servers: Settings) -> None:
    with Client(tenant.api_url, tenant.api_key) as client:
        task = submit(client)
        seen = Followed(client, task).to_end(WITHIN_S)
        result, view = client.result(task), client.get(task)
    assert result.status is TaskStatus.COMPLETED, result
    assert result.stop_reason is StopReason.COMPLETED
    assert [c.passed for c in result.checks] == [True]
    assert [e.seq for e in seen.events] == list(range(1, len(seen.events) + 1)) == list(range(1, view.last_seq + 1))
    assert seen.events[-1].data.type == "task.completed"
    assert view.usage == result.usage
    assert view.usage.tokens == sum(d.usage.tokens for d in seen.of("model.completed"))
    assert {s.state for s in view.steps} == {"completed"}
    _first_fix_failed_and_second_passed(seen)
    _words_came_live(seen)
    await _artifacts_are_in_s3(tenant, servers, result.artifacts)


def _first_fix_failed_and_second_passed(seen: Followed) -> None:
    """Before the repair, after the first idea, after the second: the same command, three outcomes."""
    runs = {d.exec_id: d.command for d in seen.of("exec.started")}
    mine = {e.data.exec_id for e in seen.events if e.data.type == "exec.started" and e.step_id == "repair"}
    ended = [d for d in seen.of("exec.exited") if d.exec_id in mine and runs[d.exec_id] == CHECK]
    assert [d.exit_code for d in ended[:3]] == [1, 1, 0]
    assert "3 failed" in ended[0].output
    assert "1 failed" in ended[1].output
    assert "test_taxi_without_ana" in ended[1].output
    assert "25 passed" in ended[2].output
    assert [d.verdict for d in seen.of("review.submitted")] == ["approve"] * 3


def _words_came_live(seen: Followed) -> None:
    assert seen.deltas, "no delta came"
    by_key: dict[str, str] = {}
    for delta in seen.deltas:
        by_key[delta.key] = by_key.get(delta.key, "") + delta.text
    said = {d.key: d.text for d in seen.of("model.completed")}
    whole = [key for key, text in by_key.items() if said.get(key, "").startswith(text[:40])]
    assert len(whole) >= len(by_key) // 2


async def _artifacts_are_in_s3(tenant: Tenant, servers: Settings, artifacts: Any) -> None:
    assert sorted(a.path for a in artifacts) == ["REPAIR.md", "repair.diff"]
    objects = S3Objects(servers)
    try:
        for artifact in artifacts:
            data = await objects.get(tenant.id, BlobRef(sha256=artifact.sha256, bytes=artifact.bytes))
            assert hashlib.sha256(data).hexdigest() == artifact.sha256
            assert len(data) == artifact.bytes
    finally:
        await objects.close()


def test_a_run_that_differs_from_the_recording_is_refused_with_both_shown(tenant: Tenant) -> None:
    with Client(tenant.api_url, tenant.api_key) as client:
        task = submit(client, repo=None)
        Followed(client, task).to_end(WITHIN_S)
        result = client.result(task)
    assert result.stop_reason is StopReason.ERROR
    assert result.error
    assert result.error.code.value == "REPLAY_MISMATCH"
    assert '"exit_code": 1' in result.error.detail
    assert "this run" in result.error.detail


def test_an_instruction_that_was_never_recorded_ends_with_a_reason(tenant: Tenant) -> None:
    with Client(tenant.api_url, tenant.api_key) as client:
        task = submit(client, instruction="Something else entirely.")
        Followed(client, task).to_end(WITHIN_S)
        result = client.result(task)
    assert result.error
    assert result.error.code.value == "REPLAY_NOT_RECORDED"
    assert "code_repair" in result.error.detail


def test_one_demo_by_its_name_and_what_can_be_seen_of_it_afterwards(stack: Stack) -> None:
    ran = command(stack, "demo", DEMO.name)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    task = re.findall(r"^(task_\w+) completed$", ran.stdout, re.M)
    assert len(task) == 1
    told = command(stack, "watch", task[0])
    assert told.returncode == 0, told.stderr
    for words in (
        "plan 1: 2 steps",
        "$ python -m pytest -q",
        "exit code 1",
        "exit code 0",
        "review: approve",
        "sha256",
    ):
        assert words in ran.stdout
        assert words in told.stdout
    assert task[0] in command(stack, "list").stdout
    assert "task.completed" in command(stack, "events", task[0]).stdout
    assert json.loads(command(stack, "result", task[0], "--json").stdout)["status"] == "completed"
    _its_checkpoints_can_be_looked_into(stack, task[0])


def _its_checkpoints_can_be_looked_into(stack: Stack, task: str) -> None:
    kept = json.loads(command(stack, "checkpoints", task, "--json").stdout)
    assert len(kept) == 2
    first, last = (one["id"] for one in kept)
    lines = command(stack, "checkpoints", task).stdout.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [first, last]
    assert all(one["state"]["rows"] and not one["state"]["fault"] for one in kept)
    paths = [line.split("  ")[-1] for line in command(stack, "checkpoints", task, first).stdout.splitlines()]
    assert "README.md" in paths
    read = command(stack, "checkpoints", task, first, "--file", "README.md")
    assert read.stdout == (DEMO.workspace / "README.md").read_text()
    changes = json.loads(command(stack, "checkpoints", task, last, "--since", first, "--json").stdout)
    assert (changes["before"], changes["after"]) == (first, last)
    refused = command(stack, "checkpoints", task, first, "--file", "nothing")
    assert (refused.returncode, "FILE_NOT_FOUND" in refused.stderr) == (2, True)
    assert f"longhaul checkpoints {task} {first}` lists them" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("get", "task_00000000000000000000000000"), 2, "NOT_FOUND"),
        (("submit", "x", "--tier", "huge"), 2, "choose one of"),
        (("submit", "x", "--repo", "/no/such/folder"), 2, "no such folder"),
        (("submit", "   "), 2, "blank"),
        (("submit", "x", "--limit", "tokens=lots"), 2, "limit"),
        (("submit", "x"), 2, "LONGHAUL_MODEL_BASE_URL"),
    ],
)
def test_wrong_use_has_an_exit_code_and_says_what_to_do(
    stack: Stack, arguments: tuple[str, ...], code: int, says: str
) -> None:
    ran = command(stack, *arguments)
    assert ran.returncode == code, ran.stdout + ran.stderr
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_a_stack_it_says_how_to_start_one(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("LONGHAUL_")}
    env["LONGHAUL_DATA_DIR"] = str(tmp_path / "none")
    argv = [sys.executable, "-m", "services.cli.main", "list"]
    ran = subprocess.run(argv, cwd=CHECKOUT, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 4
    assert "longhaul up" in ran.stderr


def test_ctrl_c_stops_the_stack_that_the_demo_started_and_says_what_rests() -> None:
    own = Stack(new_data_dir())
    env = {k: v for k, v in os.environ.items() if not k.startswith("LONGHAUL_")}
    env |= {"LONGHAUL_PORT": "0", "PYTHONUNBUFFERED": "1", "LONGHAUL_RUNNER_TEMPLATE_DIR": str(own.template)}
    argv = [sys.executable, "-m", "services.cli.main", "demo", "--data-dir", str(own.data.root)]
    try:
        with subprocess.Popen(argv, cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, text=True) as demo:
            assert demo.stdout
            said = next((line for line in demo.stdout if "$ python -m pytest" in line), None)
            assert said, "the demo ended before its first command"
            demo.send_signal(signal.SIGINT)
            rest, _ = demo.communicate(timeout=60)
        assert demo.returncode == 130
        assert "longhaul cancel task_" in rest
        assert own.data.lock_holder() is None
        own.assert_no_leftovers()
    finally:
        own.remove()


def test_two_demos_at_once_share_a_stack_which_stays_while_the_other_uses_it() -> None:
    own = Stack(new_data_dir())
    env = {k: v for k, v in os.environ.items() if not k.startswith("LONGHAUL_")}
    env |= {"LONGHAUL_PORT": "0", "PYTHONUNBUFFERED": "1", "LONGHAUL_RUNNER_TEMPLATE_DIR": str(own.template)}
    argv = [sys.executable, "-m", "services.cli.main", "demo", DEMO.name, "--data-dir", str(own.data.root)]
    try:
        both = [
            subprocess.Popen(argv, cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for _ in range(2)
        ]
        said = [each.communicate(timeout=200)[0] for each in both]
        assert [each.returncode for each in both] == [0, 0], said
        assert sum("The stack is up after" in text for text in said) == 1, said
        assert sum("Using the stack at" in text for text in said) == 1, said
        stays = any("The stack stays up, because others work on it" in text for text in said)
        assert stays == (own.data.lock_holder() is not None)
        assert any(f"{LONGHAUL} events task_" in text for text in said), "as it can be called from here"
    finally:
        command(own, "down")
        own.remove()


def test_who_follows_a_task_on_a_stack_that_was_stopped_is_told_so() -> None:
    own = Stack(new_data_dir(), env={"LONGHAUL_REPLAY_PACE_MS": "2000"})
    env = {k: v for k, v in os.environ.items() if not k.startswith("LONGHAUL_")}
    env |= {"PYTHONUNBUFFERED": "1", "LONGHAUL_DATA_DIR": str(own.data.root), "TERM": "dumb"}
    argv = [sys.executable, "-m", "services.cli.main", "demo", DEMO.name]
    try:
        own.start()
        with subprocess.Popen(
            argv, cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as demo:
            assert demo.stdout
            said = next((line for line in demo.stdout if "accepted" in line), None)
            assert said, "the demo ended before its first event"
            assert own.end() == 0
            rest, _ = demo.communicate(timeout=60)
        assert demo.returncode == 4, rest
        assert rest.count("link down") == 1, rest
        assert re.search(r"Error: The stack was stopped: `\S*longhaul up`, then `\S*longhaul watch task_\w+`", rest)
    finally:
        own.remove()
