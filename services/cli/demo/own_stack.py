"""A stack for the time of the demo: started as a child, stopped with it, and never left behind."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from services.stack.errors import StackError
from services.stack.layout import CHECKOUT, DataDir
from services.stack.logs import tail
from services.stack.ports import is_free
from services.stack.status import is_ready

STOP_WITHIN_S = 45.0
_PR_SET_PDEATHSIG = 1


@contextmanager
def running(data: DataDir, port: int, say: Callable[[str], None]) -> Iterator[None]:
    """A stack on a data directory while the block runs. Its port is `port` if that is free, else any.

    Raises:
        StackError: it did not come up; the message holds the end of its log.
    """
    data.prepare()
    log = data.log("launcher")
    launcher = _start(data, port if port and is_free(port) else 0)
    try:
        while not is_ready(data, launcher.pid):
            if launcher.poll() is not None:
                raise StackError(f"The stack did not come up. The end of {log}:\n{tail(log)}")
            time.sleep(0.1)
        yield
    finally:
        _stop(launcher, say)


def _start(data: DataDir, port: int) -> "subprocess.Popen[bytes]":
    """`longhaul up` in a session of its own, so that Ctrl-C reaches only us; it is told to stop if we die."""
    libc, us = ctypes.CDLL(None), os.getpid()

    def stop_with_us() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != us:
            os._exit(127)

    argv = [sys.executable, "-m", "services.cli.main", "up", "--data-dir", str(data.root), "--port", str(port)]
    with data.log("launcher").open("wb") as output:
        return subprocess.Popen(
            argv,
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=stop_with_us,
        )


def _stop(launcher: "subprocess.Popen[bytes]", say: Callable[[str], None]) -> None:
    """In order; a second Ctrl-C hurries; whatever happens, it is gone afterwards."""
    if launcher.poll() is not None:
        return
    say("Stopping the stack that this demo started …")
    launcher.terminate()
    deadline = time.monotonic() + STOP_WITHIN_S
    while launcher.poll() is None and time.monotonic() < deadline:
        try:
            launcher.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            continue
        except KeyboardInterrupt:
            launcher.terminate()  # the launcher takes a second signal as "at once"
    if launcher.poll() is None:
        launcher.kill()  # its children die with it
        launcher.wait()
