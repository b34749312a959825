"""Which process is which on which host: a name that tells, to whoever looks from the same host, whether it still runs.

A process that is starved or stopped is alive; only one that the kernel does not know any more is gone. From another
host or another container nothing can be said.
"""

import os
import re
import socket
from pathlib import Path

_SHAPE = re.compile(r"(?P<pid>\d+)@[^/]*/(?P<started>\d+)/(?P<world>[0-9a-f-]+\.\d+)")
_STATE, _STARTED = 0, 19
"""Fields of ``/proc/PID/stat`` behind the name of the program."""


def mine() -> str:
    """This process: ``PID@HOST/START/WORLD``, the start in the kernel's ticks, the world a boot and a pid namespace."""
    pid = os.getpid()
    return f"{pid}@{socket.gethostname()}/{_stat(pid)[_STARTED]}/{_world()}"


def gone(identity: str) -> bool:
    """Whether that process surely does not run any more. False for one that cannot be seen from here."""
    found = _SHAPE.fullmatch(identity)
    if found is None or found["world"] != _world():
        return False
    try:
        stat = _stat(int(found["pid"]))
    except OSError:
        return not _answers(int(found["pid"]))
    return stat[_STATE] in ("Z", "X") or stat[_STARTED] != found["started"]


def _stat(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text[text.rindex(")") + 2 :].split()


def _world() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    namespace = "".join(c for c in os.readlink("/proc/self/ns/pid") if c.isdigit())
    return f"{boot}.{namespace}"


def _answers(pid: int) -> bool:
    """Whether there is such a process at all: /proc may hide what belongs to others."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
