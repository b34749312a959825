"""Starts sandboxes for the runner: ``python -I -S forks.py``, launches by stdin, what became of them by stdout.

An interpreter takes longer to start than a sandbox, so one is started once and forks. A line of stdin is
``{"launch": Launch, "log": PATH}``; of stdout ``{"pid": N}`` for each, in their order, and ``{"pid": N, "code": N}`` at
its end. What it has started goes on when it ends, which it does at the end of stdin. One thread, the standard library
only.
"""

import contextlib
import json
import os
import select
import signal
import sys
from typing import Any, NoReturn

if __name__ == "__main__":  # an isolated interpreter does not look beside the script
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from services.sandbox.supervised.launch import Launch, become

READ_BYTES = 1 << 16


def _say(told: dict[str, int]) -> None:
    line = json.dumps(told).encode() + b"\n"
    with contextlib.suppress(BrokenPipeError):  # the end of stdin tells
        os.write(sys.stdout.fileno(), line)  # shorter than what a pipe takes at once


def _child(asked: dict[str, Any]) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for number in (1, 2):
            os.dup2(log, number)
        become(Launch(**asked["launch"]))
    except SystemExit as end:
        os._exit(int(end.code or 0))
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)


def _collect() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            _say({"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def serve() -> None:
    """Until the end of stdin."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poller = select.poll()
    for fd in (sys.stdin.fileno(), read):
        poller.register(fd, select.POLLIN)
    held = b""
    while True:
        for fd, _ in poller.poll():
            data = os.read(fd, READ_BYTES)
            if fd == read:
                _collect()
                continue
            if not data:
                return
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                pid = os.fork()
                if not pid:
                    _child(json.loads(line))
                _say({"pid": pid})


if __name__ == "__main__":
    for name in ("SIGINT", "SIGHUP", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    serve()
