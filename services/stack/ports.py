"""Ports on the loopback: which are free, and who holds one that is not."""

import os
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from services.stack.errors import StackRefused

HOST = "127.0.0.1"
INNER = (
    "postgres",
    "nats",
    "nats_monitor",
    "temporal",
    "temporal_http",
    "temporal_metrics",
    "weed_master",
    "weed_master_grpc",
    "weed_volume",
    "weed_volume_grpc",
    "weed_filer",
    "weed_filer_grpc",
    "s3",
    "s3_grpc",
    "runner",
    "replay",
)
"""Every port but the API's."""


NO_LOOPBACK = (
    "The parts of a stack talk over it; IPv6 alone is not enough. As root: ip addr add 127.0.0.1/8 dev lo && ip link"
    " set lo up"
)


def has_loopback() -> bool:
    """Whether `HOST` can be listened on and reached. No name is looked up: what ``localhost`` means is no matter."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        try:
            server.bind((HOST, 0))
            server.listen(1)
            socket.create_connection(server.getsockname(), timeout=5.0).close()
        except OSError:
            return False
    return True


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def allocate(api_port: int, remembered: dict[str, int]) -> dict[str, int]:
    """A port for each name: the API's as asked (0 = any), the others as before where still free.

    Raises:
        StackRefused: the API's port is taken, or there is no loopback.
    """
    check_port(api_port)
    ports = {"api": api_port or remembered.get("api", 0)}
    ports |= {name: remembered.get(name, 0) for name in INNER}
    taken: set[int] = set()
    for name, port in ports.items():
        if not port or port in taken or (not (name == "api" and api_port) and not is_free(port)):
            ports[name] = _any_free(taken)
        taken.add(ports[name])
    return ports


def check_port(api_port: int) -> None:
    """Whether the API can have its port (0 = any).

    Raises:
        StackRefused: the port is taken, or there is no loopback.
    """
    if not has_loopback():
        raise StackRefused(f"Nothing can be reached on {HOST} of this machine.\n{NO_LOOPBACK}")
    if api_port and not _becomes_free(api_port):
        raise StackRefused(_busy(api_port))


def _becomes_free(port: int, patience_s: float = 2.0) -> bool:
    """A stack that was just killed needs a moment to let go of its port."""
    deadline = time.monotonic() + patience_s
    while not (free := is_free(port)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return free


def _any_free(taken: Iterable[int]) -> int:
    """A free port below the range from which clients get theirs, so that no outgoing connection takes it meanwhile."""
    low, high = 20_000, _client_range_start()
    for _ in range(2_000):
        port = low + int.from_bytes(os.urandom(4), "big") % max(high - low, 5_000)
        if port not in taken and is_free(port):
            return port
    raise StackRefused(f"no free port between {low} and {high} on {HOST}")


def _client_range_start() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 32_768


def _busy(port: int) -> str:
    holder = holder_of(port)
    by = f" by process {holder[0]} ({holder[1]})" if holder else ""
    return (
        f"Port {port} on {HOST} is in use{by}, and the API needs it.\n"
        f"Stop what uses it, or choose another: longhaul up --port {port + 1} (or LONGHAUL_PORT={port + 1}; 0: any)."
    )


def holder_of(port: int) -> tuple[int, str] | None:
    """Pid and name of the process that listens on a port, where we may see it."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        try:
            if any(os.readlink(fd) in inodes for fd in (process / "fd").iterdir()):
                return int(process.name), (process / "comm").read_text().strip()
        except OSError:
            continue
    return None


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for columns in (row.split() for row in rows):
            if columns[3] == "0A" and int(columns[1].rsplit(":", 1)[1], 16) == port:
                found.add(columns[9])
    return found
