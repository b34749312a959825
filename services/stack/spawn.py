"""Starting a process that cannot outlive the launcher, and learning of its end without losing its process group."""

import asyncio
import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1


class Owner(NamedTuple):
    """The user a process runs as, where root starts it for somebody else."""

    uid: int
    gid: int


class Process:
    """A running child, the leader of a session and group of its own. `exited` becomes its exit code (-N: signal N)."""

    def __init__(self, popen: "subprocess.Popen[bytes]", exited: "asyncio.Future[int]") -> None:
        """Made by `Spawner.spawn`."""
        self.pid = popen.pid
        self.exited = exited

    def signal(self, number: int) -> None:
        """Signal the leader; nothing happens where it has ended."""
        if not self.exited.done():
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL the whole group."""
        if not self.exited.done():
            os.killpg(self.pid, signal.SIGKILL)


class Spawner:
    """Spawns and reaps. One per process, made in the main thread: a child dies with the *thread* that forked it."""

    def __init__(self) -> None:
        """Must be called with the event loop running."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._children: dict[subprocess.Popen[bytes], asyncio.Future[int]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)

    def spawn(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        output: Path,
        owner: Owner | None = None,
        pass_fds: Sequence[int] = (),
        stdin: Path | None = None,
    ) -> Process:
        """Start `argv`; what it prints is appended to `output`. Raises OSError where it cannot be executed."""
        launcher = os.getpid()

        def die_with_launcher() -> None:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != launcher:  # it was gone before prctl: no signal will come
                os._exit(127)

        log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        source = os.open(stdin or os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            popen = subprocess.Popen(
                list(argv),
                env=dict(env),
                cwd=cwd,
                stdin=source,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
                user=owner.uid if owner else None,
                group=owner.gid if owner else None,
                extra_groups=[] if owner else None,
                preexec_fn=die_with_launcher,
            )
        finally:
            os.close(log)
            os.close(source)
        exited: asyncio.Future[int] = self._loop.create_future()
        self._children[popen] = exited
        return Process(popen, exited)

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        output: Path,
        owner: Owner | None = None,
        stdin: Path | None = None,
    ) -> int:
        """Start a command and wait for its exit code; cancelling the wait kills it."""
        process = self.spawn(argv, env=env, cwd=cwd, output=output, owner=owner, stdin=stdin)
        try:
            return await asyncio.shield(process.exited)
        finally:
            process.kill()

    def _reap(self) -> None:
        for popen, exited in list(self._children.items()):
            if os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(popen.pid, signal.SIGKILL)  # what it left behind; the zombie still holds the group's number
            del self._children[popen]
            exited.set_result(popen.wait())
