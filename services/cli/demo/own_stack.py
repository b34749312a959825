"""A stack for the time of the demo: started as a child and stopped with it, unless others use it by then."""

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from services.cli.connect import Access, find
from services.cli.stack import template_dir
from services.cli.starting import Launching, wait_until_up
from services.stack.errors import StackRefused
from services.stack.launcher import Options, check
from services.stack.layout import DataDir
from services.stack.ports import is_free
from services.stack.status import is_ready

STOP_WITHIN_S = 45.0
Say = Callable[[str], None]


@contextmanager
def shared(data: DataDir, say: Say) -> Iterator[Access]:
    """A stack that is not ours, once it is up: that of the environment, or the one on this directory, whose owner sees
    by a lock that somebody is there.

    Raises:
        CliError: it is gone again.
        StackError: it does not come up.
    """
    if os.environ.get("LONGHAUL_URL"):
        yield _using(data, say)
        return
    with _guests_lock(data).open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        holder = data.lock_holder()
        if holder is not None and not is_ready(data, holder):
            say(f"Another stack is coming up in {data.root}; waiting for it …")
            wait_until_up(data, holder, lambda: data.lock_holder() == holder)
        yield _using(data, say)


def guests(data: DataDir) -> bool:
    """Whether anybody shares the stack on this directory."""
    with _guests_lock(data).open("ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _guests_lock(data: DataDir) -> Path:
    return data.root / "guests"


def _using(data: DataDir, say: Say) -> Access:
    access = find(data)
    say(f"Using the stack at {access.url}.")
    return access


class OwnStack:
    """A launcher that holds a pipe of ours: however we end, it hears of that and stops too."""

    def __init__(self, data: DataDir, port: int) -> None:
        """Start it, on `port` if that is free, else on any.

        Raises:
            StackRefused: it may not be started; nothing was touched.
        """
        port = port if port and is_free(port) else 0
        check(Options(data.root, port, template_dir().absolute(), dict(os.environ)))
        heard, self._pipe = os.pipe()
        self._data = data
        try:
            self._launching = Launching(data, ("--port", str(port), "--owner-fd", str(heard)), (heard,))
        finally:
            os.close(heard)

    def comes_up(self) -> bool:
        """Wait until it is up; False where another launcher was there first.

        Raises:
            StackError: it did not come up; the message holds the end of its log.
        """
        code = self._launching.wait()
        if code == StackRefused.exit_code and self._data.lock_holder() is not None:
            return False
        if code is not None:
            raise self._launching.failure()
        return True

    def leave(self) -> None:
        """Let it run when we have ended."""
        os.write(self._pipe, b"stay")

    def stop(self, say: Say) -> None:
        """In order; a second Ctrl-C hurries; whatever happens, it is gone afterwards."""
        launcher = self._launching.process
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
