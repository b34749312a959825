"""The whole stack: what it costs idle, who gets what, and that each of our own processes comes back."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from services.stack.probe import ask
from tests.support.stack import Stack

OURS = ("runner", "replay", "relay", "worker-1", "worker-2", "api")
SERVERS = ("launcher", "postgres", "temporal", "nats", "seaweedfs")
IDLE_BYTES, IDLE_SERVERS_BYTES = 900e6, 450e6

pytestmark = pytest.mark.timeout(300)  # starting the whole on a busy machine takes its time


def test_everything_is_up(stack: Stack) -> None:
    status = stack.report()
    assert {unit.name for unit in status.units} == {*OURS, *SERVERS}
    assert all(unit.state == "ready" for unit in status.units), status


@pytest.mark.parametrize("port", ["api", "runner", "replay"])
async def test_health_is_answered_without_a_token(stack: Stack, port: str) -> None:
    assert (await ask(stack.ports[port], "/healthz")).status == 200
    assert (await ask(stack.ports[port], "/readyz")).status == 200


@pytest.mark.parametrize(
    ("port", "path"), [("runner", "/v1/sandboxes"), ("replay", "/v1/models"), ("api", "/v1/tasks")]
)
async def test_nothing_else_is(stack: Stack, port: str, path: str) -> None:
    assert (await ask(stack.ports[port], path)).status == 401


def test_the_runner_alone_holds_the_pipe(stack: Stack) -> None:
    launcher, runner = stack.unit("launcher").pid, stack.unit("runner").pid
    fd = int(_environment(runner)["LONGHAUL_RUNNER_PIPE_FD"])
    pipe = os.readlink(f"/proc/{runner}/fd/{fd}")
    holders = {unit.name for unit in stack.report().units if pipe in _open_files(unit.pid)}
    assert holders == {"launcher", "runner"}
    assert launcher != runner


def test_each_process_gets_its_own_secrets_only(stack: Stack) -> None:
    secrets = stack.secrets
    seen = {unit.name: set(_environment(unit.pid).values()) for unit in stack.report().units if unit.name != "launcher"}
    for name, values in seen.items():
        assert secrets.api_key not in values, name
        assert secrets.pg_admin_password not in values, name
        assert secrets.s3_admin_secret_key not in values, name
    holders = {
        secrets.pg_password: {"api", "relay", "worker-1", "worker-2"},
        secrets.s3_secret_key: {"api", "relay", "runner", "worker-1", "worker-2"},
        secrets.runner_token: {"api", "relay", "runner", "worker-1", "worker-2"},
        secrets.replay_token: {"replay", "worker-1", "worker-2"},
    }
    for secret, names in holders.items():
        assert {name for name, values in seen.items() if secret in values} == names
    assert [name for name, values in seen.items() if secrets.nats_relay_password in values] == ["nats", "relay"]


def test_a_fresh_stack_is_small_and_our_own_processes_come_back(fault_stack: Callable[..., Stack]) -> None:
    running = fault_stack()
    sizes = {unit.name: unit.pss_bytes for unit in running.report().units}
    assert sum(sizes.values()) <= IDLE_BYTES, sizes
    assert sum(sizes[name] for name in SERVERS) <= IDLE_SERVERS_BYTES, sizes
    before = {name: running.unit(name) for name in OURS}
    for name in OURS:
        running.kill(name)

    def back() -> bool:
        now = {name: running.unit(name) for name in OURS}
        return all(
            now[name].state == "ready" and now[name].restarts == 1 and now[name].pid != before[name].pid
            for name in OURS
        )

    running.wait(back, 60, "all are back")
    assert {running.pid("worker-1"), running.pid("worker-2")} <= asyncio.run(_pollers(running)), "ready before it works"


async def _pollers(stack: Stack) -> set[int]:
    """The processes that have asked Temporal for bursts of turns."""
    path = "/api/v1/namespaces/longhaul/task-queues/lh-burst?taskQueueType=TASK_QUEUE_TYPE_ACTIVITY"
    pollers = json.loads((await ask(stack.ports["temporal_http"], path)).body)["pollers"]
    return {int(poller["identity"].partition("@")[0]) for poller in pollers}


def _environment(pid: int | None) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_text(errors="replace")
    return dict(entry.partition("=")[::2] for entry in text.split("\0") if entry)


def _open_files(pid: int | None) -> set[str]:
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(fd))
        except OSError:
            continue
    return found
