"""What tests of single services stand on: a database of their own, a NATS server of their own, rows to work with."""

import asyncio
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from services.ids import new_id
from services.settings import Settings
from services.store.database import Database
from services.store.migrate import migrate
from services.store.tables import task_starts, tasks

DIGEST = "0" * 64


@asynccontextmanager
async def fresh_database(settings: Settings) -> AsyncIterator[Settings]:
    """Settings that point at an empty database with the newest schema; it is dropped at the end."""
    own = settings.model_copy(update={"pg_database": f"test_{secrets.token_hex(6)}"})
    await migrate(own)
    try:
        yield own
    finally:
        conn = await connect(settings, "postgres")
        await conn.execute(f'DROP DATABASE IF EXISTS "{own.pg_database}" WITH (FORCE)')
        await conn.close()


async def connect(settings: Settings, database: str) -> "asyncpg.Connection[asyncpg.Record]":
    """A bare connection, to look at what is there."""
    return await asyncpg.connect(
        host=settings.pg_host,
        port=settings.pg_port,
        user=settings.pg_user,
        password=settings.pg_password.get_secret_value(),
        database=database,
    )


async def add_task(conn: AsyncConnection, *, tenant_id: str = "default", started: bool = True, **more: object) -> str:
    """A task as the API accepts it; returns its id. `more` are columns."""
    now = datetime.now(UTC)
    task_id = new_id("task")
    row = {
        "id": task_id,
        "tenant_id": tenant_id,
        "instruction": "do it",
        "instruction_excerpt": "do it",
        "instruction_sha256": DIGEST,
        "spec": {},
        "tier": "auto",
        "metadata": {},
        "status": "queued",
        "admitted_at": now if started else None,
        "created_at": now,
        "updated_at": now,
        "turns_limit": 500,
        **more,
    }
    await conn.execute(insert(tasks).values(row))
    start = {"task_id": task_id, "tenant_id": tenant_id, "created_at": now, "started_at": now if started else None}
    await conn.execute(insert(task_starts).values(start))
    return task_id


@asynccontextmanager
async def database(settings: Settings) -> AsyncIterator[Database]:
    """The database behind the settings; closed at the end."""
    db = Database(settings.pg_url, pool_size=8)
    try:
        yield db
    finally:
        await db.close()


class NatsServer:
    """A NATS server of the test's own, to be killed and started again on the same port and data."""

    def __init__(self, config: str = "") -> None:
        self._dir = tempfile.TemporaryDirectory(prefix="nats-")
        self.port = _free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._config = Path(self._dir.name, "nats.conf")
        self._config.write_text(
            f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{self._dir.name}/js" }}\n{config}\n'
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        binary = Path(sys.executable).with_name("nats-server")
        self._process = subprocess.Popen([binary, "-c", self._config], stderr=subprocess.DEVNULL)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            self._process.poll()
            time.sleep(0.02)
        raise AssertionError("the NATS server did not start")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let it hold its connections and answer nothing."""
        if self._process:
            self._process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it and delete its data."""
        self.kill()
        self._dir.cleanup()


class Process:
    """One of our mains as a process of its own; killed at the end of the block."""

    def __init__(self, *command: str, settings: Settings) -> None:
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **environment(settings), "PYTHONPATH": os.getcwd()},
            stderr=self._out,
            stdout=self._out,
        )

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def log(self) -> str:
        """What it has said so far."""
        self._out.seek(0)
        return self._out.read().decode()

    async def says(self, text: str, timeout_s: float = 50.0) -> None:
        """Wait until it has said something."""
        async with asyncio.timeout(timeout_s):
            while text not in self.log():
                assert self._process.poll() is None, self.log()
                await asyncio.sleep(0.05)

    async def wait(self, timeout_s: float = 50.0) -> int:
        """Its exit code."""
        async with asyncio.timeout(timeout_s):
            return await asyncio.to_thread(self._process.wait)

    def signal(self, number: int) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Kill it where it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._out.close()


def environment(settings: Settings) -> dict[str, str]:
    """The settings as the variables a process reads them from."""
    values = settings.model_dump(mode="python")
    return {
        f"LONGHAUL_{name.upper()}": value.get_secret_value() if hasattr(value, "get_secret_value") else str(value)
        for name, value in values.items()
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
