"""The keeper of one command: starts it, copies its output, ends it in time, records its end.

Run by the runner as ``python -I -S keeper.py EXEC_DIR``, with the plan (JSON of `services.sandbox.backend.Plan`) on
stdin and the locked file `lock` inherited. Standard library only, because it must start fast and owe nothing to the
runner: it has its own session and goes on when the runner is killed. What it leaves in EXEC_DIR:

    lock          flocked for as long as this keeper lives (the descriptor is inherited): how the runner knows
    started.json  made once (O_EXCL) before anything is started; with it and no living keeper the command is lost
    output.bin    8 bytes of total count, the head, then a ring that holds the tail
    exit.json     how it ended, by fsync and rename
    control       a FIFO that only wakes; the file `kill` is what asks for the end
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

if __name__ == "__main__":  # an isolated interpreter does not look beside the script
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from services.sandbox.command import Command, adopt_orphans, start_ticks
from services.sandbox.kept import NO_SPACE, Output, durable_json

CHUNK = 1 << 18
END_WAIT_S = 20.0
SPACE_POLL_S = 0.2

T = TypeVar("T")


class Keeper:
    """The loop: output, timeout, kill, the launcher's pipe."""

    def __init__(self, folder: str, plan: dict[str, Any]) -> None:
        self.folder = folder
        self.plan = plan
        self.asked: str | None = None  # why we are ending it: timeout | killed
        self.begun = time.monotonic()
        self.started_at = time.time()
        self.deadline = self.begun + plan["timeout_s"]
        self.kill_at = float("inf")
        self.terminated = False
        self.held = b""
        """Output that a full disk has not taken yet."""

    def path(self, name: str) -> str:
        """A file of the exec's folder."""
        return f"{self.folder}/{name}"

    def run(self) -> None:
        """From the start to the exit record. The runner took the lock and handed it over: no two keepers get here."""
        if os.path.exists(self.path("started.json")) or os.path.exists(self.path("exit.json")):
            return
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self.path("control"), 0o600)
        self.control = os.open(self.path("control"), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        started = {"pid": os.getpid(), "at": self.started_at}
        durable_json(self.path("started.json"), started, exclusive=True)
        if self.must_end():
            self.record(137, "killed", 0)
            return
        self.supervise()

    def must_end(self) -> bool:
        """Whether someone asked for the end: the kill file, or the launcher's death."""
        return os.path.exists(self.path("kill")) or self.launcher_gone()

    def launcher_gone(self) -> bool:
        """Whether nobody holds the other end of the pipe any more."""
        fd = self.plan["pipe_fd"]
        if fd < 0:
            return False
        poller = select.poll()
        poller.register(fd, 0)  # POLLHUP only: data is nobody's business here
        return bool(poller.poll(0))

    def supervise(self) -> None:
        """Start the command and stay until it has ended."""
        signal.signal(signal.SIGTERM, self._on_term)
        read_wake, write_wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_wake)
        adopt_orphans()
        output = self.when_there_is_space(lambda: Output(self.path("output.bin"), self.plan["cap_bytes"]))
        command = Command(self.plan)
        poller = select.poll()
        for fd in (command.output_fd, command.status_fd, command.pidfd, self.control, read_wake):
            poller.register(fd, select.POLLIN)
        if self.plan["pipe_fd"] >= 0:
            poller.register(self.plan["pipe_fd"], 0)
        released = False
        while command.wait_status is None:
            self.push(command)
            for fd, _ in poller.poll(self.wait_ms()):
                if fd in (command.output_fd, command.status_fd):
                    open_still = self.copy(command, output) if fd == command.output_fd else command.read_status()
                    if not open_still:
                        poller.unregister(fd)
                elif fd == self.control or fd == read_wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 4096)
                elif fd == self.plan["pipe_fd"]:
                    poller.unregister(fd)
                    self.asked, self.kill_at = self.asked or "killed", 0.0
            if self.asked is None and self.must_end():
                self.asked = "killed"
            if command.init_pid and not released:
                released = True
                self.note_init(command)
                if self.asked is None:
                    command.release()
                else:
                    self.kill_at = 0.0
            command.reap()
        self.finish(command, output, released)

    def _on_term(self, *_: object) -> None:
        self.asked = self.asked or "killed"

    def wait_ms(self) -> int:
        """How long to sleep when nothing happens: to the next deadline, at most a second."""
        until = min(self.kill_at, self.deadline if self.asked is None else float("inf"))
        return 1000 if until == float("inf") else max(0, min(1000, int((until - time.monotonic()) * 1000) + 1))

    def push(self, command: Command) -> None:
        """Start the end, or finish it, when its time has come."""
        now = time.monotonic()
        if self.asked is None and now >= self.deadline:
            self.asked = "timeout"
        if self.asked is not None and not self.terminated:
            self.terminated = True
            self.kill_at = min(self.kill_at, now + self.plan["grace_s"])
            if self.kill_at > now and not command.terminate():
                self.kill_at = now
        if now >= self.kill_at:
            command.kill()
            self.kill_at = now + 0.5

    def copy(self, command: Command, output: Output) -> bool:
        """One piece of output; False at its end. On a full disk a piece is held, and the command waits at its pipe."""
        try:
            data = self.held or os.read(command.output_fd, CHUNK)
        except BlockingIOError:
            return True
        try:
            output.add(data)
        except OSError as error:
            if error.errno not in NO_SPACE or self.launcher_gone():
                raise
            self.held = data
            time.sleep(SPACE_POLL_S)
            return True
        self.held = b""
        return bool(data)

    def when_there_is_space(self, act: Callable[[], T]) -> T:
        """Do something that writes; on a full disk again and again, for as long as the launcher lives."""
        while True:
            try:
                return act()
            except OSError as error:
                if error.errno not in NO_SPACE or self.launcher_gone():
                    raise
            time.sleep(SPACE_POLL_S)

    def note_init(self, command: Command) -> None:
        """Leave on disk who the first process is, so that its end can be proved without this keeper."""
        with contextlib.suppress(OSError):
            ticks = start_ticks(command.init_pid)
            durable_json(self.path("init.json"), {"pid": command.init_pid, "start_ticks": ticks})

    def finish(self, command: Command, output: Output, released: bool) -> None:
        """The main process has ended: end what it left behind, take the last output, record."""
        duration_ms = int((time.monotonic() - self.begun) * 1000)
        command.read_status()
        command.kill()
        limit = time.monotonic() + END_WAIT_S
        if command.init_fd >= 0:
            poller = select.poll()
            poller.register(command.init_fd, select.POLLIN)
            while not poller.poll(100) and time.monotonic() < limit:
                command.kill()
        os.set_blocking(command.output_fd, True)
        while (self.held or select.select([command.output_fd], [], [], 1.0)[0]) and self.copy(command, output):
            pass
        command.reap()
        if self.asked is not None:
            self.record(command.exit_code, self.asked, output.total, duration_ms)
        elif command.inner_code is None and not released:
            self.record(None, "spawn_failed", output.total, duration_ms)
        else:
            code = command.exit_code
            known = command.inner_code is not None
            reason = "signal" if 128 < code <= 192 else "exited" if known else "spawn_failed"
            self.record(code, reason, output.total, duration_ms)

    def record(self, code: int | None, reason: str, total: int, duration_ms: int = 0) -> None:
        """Write how it ended: the commit point of the exec."""
        ended = {
            "exit_code": code,
            "reason": reason,
            "total_bytes": total,
            "duration_ms": duration_ms,
            "started_at": self.started_at,
        }
        self.when_there_is_space(lambda: durable_json(self.path("exit.json"), ended))


def main() -> NoReturn:
    """Entry: the folder is the argument, the plan comes by stdin."""
    for name in ("SIGINT", "SIGHUP", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    plan = json.loads(sys.stdin.buffer.read())
    Keeper(os.path.abspath(sys.argv[1]), plan).run()
    os._exit(0)


if __name__ == "__main__":
    main()
