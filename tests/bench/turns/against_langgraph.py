"""turn.vs_langgraph: the same turns in LangGraph with its SQLite and PostgreSQL checkpointers, by turns with ours.

LangGraph lives in a virtual environment of its own, made here at the first run: `peer.py` runs in it.
"""

import asyncio
import contextlib
import hashlib
import shutil
import subprocess
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

from sqlalchemy import text
from temporalio.client import Client

from tests.bench.turns.against_temporal import compare, ours, working
from tests.bench.turns.quick import quick
from tests.bench.turns.report import Cost, Size, progress, target
from tests.support.turns import Parts

HERE = Path(__file__).parent
SCHEMA = "langgraph_bench"


def python(root: Path) -> Path:
    """The interpreter of a virtual environment under `root` with what `requirements-peer.txt` names; made where it is
    missing or older than that.

    Raises:
        CalledProcessError: it could not be made.
    """
    wanted = (HERE / "requirements-peer.txt").read_bytes()
    place = root / f"langgraph-{hashlib.sha256(wanted + sys.version.encode()).hexdigest()[:12]}"
    found = place / "bin" / "python"
    if not (place / "complete").exists():
        progress("langgraph: making a virtual environment for it")
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        install = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        subprocess.run([*install, "--only-binary", ":all:", "-r", str(HERE / "requirements-peer.txt")], check=True)
        (place / "complete").touch()
    return found


class Peer:
    """LangGraph in its own process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def run(self) -> Cost:
        """All its tasks once."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        wall, cpu = (await self.line()).split()
        return Cost(float(wall), float(cpu))

    async def line(self) -> str:
        """What it says next."""
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        assert line, "LangGraph ended early; what it said stands above"
        return line


@contextlib.asynccontextmanager
async def peer(interpreter: Path, kind: str, where: str, size: Size) -> AsyncIterator[Peer]:
    """LangGraph, ready."""
    arguments = [str(HERE / "peer.py"), kind, where, str(size.tasks), str(size.turns)]
    process = await asyncio.create_subprocess_exec(str(interpreter), *arguments, stdin=PIPE, stdout=PIPE)
    try:
        begun = Peer(process)
        await begun.line()
        yield begun
    finally:
        assert process.stdin is not None
        process.stdin.close()
        if process.returncode is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 10)
        if process.returncode is None:
            process.kill()
            await process.wait()


@contextlib.asynccontextmanager
async def schema(parts: Parts) -> AsyncIterator[str]:
    """The address of a schema of its own in our database; dropped at the end."""
    async with parts.db.begin() as conn:
        await conn.execute(text(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"))
        await conn.execute(text(f"CREATE SCHEMA {SCHEMA}"))
    try:
        yield parts.settings.pg_url.replace("+asyncpg", "") + f"?options=-csearch_path%3D{SCHEMA}"
    finally:
        async with parts.db.begin() as conn:
            await conn.execute(text(f"DROP SCHEMA {SCHEMA} CASCADE"))


async def bench(parts: Parts, client: Client, size: Size, root: Path) -> None:
    """turn.vs_langgraph, twice."""
    interpreter = python(root)
    mine: list[Cost] = []
    sqlite: list[Cost] = []
    postgres: list[Cost] = []
    with tempfile.TemporaryDirectory() as folder:
        async with (
            working(client, quick(parts, size.turns - 1, 100)),
            schema(parts) as dsn,
            peer(interpreter, "sqlite", str(Path(folder) / "checkpoints.db"), size) as on_sqlite,
            peer(interpreter, "postgres", dsn, size) as on_postgres,
        ):
            for n in range(size.rounds):
                progress(f"langgraph: pair {n + 1} of {size.rounds}")
                sqlite.append(await on_sqlite.run())
                mine.append(await ours(parts, client, size))
                postgres.append(await on_postgres.run())
    for name, costs in (("sqlite", sqlite), ("postgres", postgres)):
        ratio = compare("turn.vs_langgraph", f"langgraph_{name}_sync", mine, costs)
        target("ratio <= 1.0", ratio <= 1.0)
