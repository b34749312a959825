"""A launcher in a process of its own: started, and waited for until its stack is up."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from services.stack.errors import StackError
from services.stack.layout import CHECKOUT, DataDir
from services.stack.logs import last_lines
from services.stack.status import is_ready, unready

UP_WITHIN_S = 300.0
"""A first start on a busy machine takes a minute; what takes longer than this never ends."""


class Launching:
    """One launcher. Several that write to the same log at once do not write over each other, and each is asked for
    its own words only."""

    def __init__(self, data: DataDir, arguments: Sequence[str], pass_fds: Sequence[int] = ()) -> None:
        """Start ``longhaul up`` in a session of its own, so that Ctrl-C reaches only us."""
        data.prepare()
        self._data, self._log = data, data.log("launcher")
        with self._log.open("ab") as output:
            self._from = output.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "services.cli.main", "up", "--data-dir", str(data.root), *arguments],
                cwd=CHECKOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )

    def wait(self, within_s: float = UP_WITHIN_S) -> int | None:
        """Until it is up; the exit code where it ended before.

        Raises:
            StackError: it does not come up; it goes on, but what it waits for is in the message.
        """
        wait_until_up(self._data, self.process.pid, lambda: self.process.poll() is None, within_s)
        return self.process.poll()

    def said(self) -> str:
        """What stands in the log since its start."""
        with self._log.open("rb") as log:
            log.seek(self._from if self._from <= os.fstat(log.fileno()).st_size else 0)  # it was rotated
            return log.read().decode("utf-8", "replace")

    def failure(self) -> StackError:
        """It ended before it was up."""
        return StackError(f"The stack did not come up. The end of {self._log}:\n{last_lines(self.said())}")


def wait_until_up(data: DataDir, pid: int, lives: Callable[[], bool], within_s: float = UP_WITHIN_S) -> None:
    """Until the stack of that launcher is up, or the launcher does not live any more.

    Raises:
        StackError: neither came; names the processes that are not ready.
    """
    deadline = time.monotonic() + within_s
    while lives() and not is_ready(data, pid):
        if time.monotonic() > deadline:
            waits = "\n".join(unready(data)) or f"  nothing has begun (its log: {data.log('launcher')})"
            raise StackError(f"The stack on {data.root} was not up after {within_s:.0f} s. Not ready:\n{waits}")
        time.sleep(0.1)
