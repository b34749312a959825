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
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import struct
import sys
import time
from typing import Any, NoReturn

SECCOMP_FD, STATUS_FD, BLOCK_FD = 3, 4, 5  # the numbers that the plan's argv names
STAGE = "/tmp"  # where root gathers what the sandbox's user must reach; in a private mount namespace
MS_BIND, MS_REC, MS_PRIVATE, CLONE_NEWNS = 4096, 16384, 1 << 18, 0x20000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CHUNK = 1 << 18
END_WAIT_S = 20.0
POLITE_TO = 100
NICE = 5  # below the keeper, which must get its turn beside a fork bomb

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def durable_json(path: str, value: dict[str, Any], *, exclusive: bool = False) -> None:
    """Write a record so that it is whole or absent after a crash. `exclusive`: FileExistsError where it exists."""
    temporary = path if exclusive else f"{path}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if exclusive else os.O_TRUNC)
    fd = os.open(temporary, flags, 0o600)
    try:
        left = memoryview(json.dumps(value).encode())
        while left:  # on a disk that is just full a part is written, and only the next write says so
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    if not exclusive:
        os.rename(temporary, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Output:
    """The kept part of the output: the first `half` bytes and a ring of the last `half`, with the total in front."""

    def __init__(self, path: str, cap: int) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._half = cap // 2
        self.total = 0
        os.pwrite(self._fd, struct.pack("<Q", 0), 0)

    def add(self, data: bytes) -> None:
        """Append; what leaves the ring is gone but counted."""
        view = memoryview(data)
        position = self.total
        if position < self._half:
            taken = view[: self._half - position]
            os.pwrite(self._fd, taken, 8 + position)
            view, position = view[len(taken) :], position + len(taken)
        if len(view) > self._half:  # only its last part can survive
            position += len(view) - self._half
            view = view[-self._half :]
        while view:
            at = (position - self._half) % self._half
            taken = view[: self._half - at]
            os.pwrite(self._fd, taken, 8 + self._half + at)
            view, position = view[len(taken) :], position + len(taken)
        self.total += len(data)
        os.pwrite(self._fd, struct.pack("<Q", self.total), 0)


def parents() -> dict[int, int]:
    """pid -> parent pid of every process this host shows."""
    found = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            found[pid] = parent_of(pid)
    return found


def parent_of(pid: int) -> int:
    """The parent's pid; OSError where the process is gone."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def descendants(root: int) -> list[int]:
    """Every process below `root`: what a command double-forked or put in a session of its own included, because in a
    PID namespace orphans become children of its first process."""
    table = parents()
    children: dict[int, list[int]] = {}
    for pid, parent in table.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def start_ticks(pid: int) -> int:
    """When a process began, in clock ticks since boot: with the pid, a name that is not used twice."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


class Command:
    """A started command: the sandbox's monitor (our child), the first process inside, and the pipes to both."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.output_fd, out_w = os.pipe2(os.O_CLOEXEC)
        self.status_fd, status_w = os.pipe2(os.O_CLOEXEC)
        block_r, self._block_fd = os.pipe2(os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.output_fd, 1031, 1 << 20)  # F_SETPIPE_SZ: fewer wake-ups in a flood
        keeper = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            become_sandbox(plan, keeper, out_w, status_w, block_r)
        for fd in (out_w, status_w, block_r):
            os.close(fd)
        os.set_blocking(self.output_fd, False)
        os.set_blocking(self.status_fd, False)
        self.pidfd = os.pidfd_open(self.pid)
        self.init_fd = -1
        self.init_pid = 0
        self.inner_code: int | None = None
        self.wait_status: int | None = None
        self._status = b""

    def read_status(self) -> bool:
        """Take what the monitor says (the first process's pid, the exit code); False at its end."""
        try:
            data = os.read(self.status_fd, 65536)
        except BlockingIOError:
            return True
        self._status += data
        *lines, self._status = self._status.split(b"\n")
        for line in filter(None, lines):
            told = json.loads(line)
            if "child-pid" in told:
                self._found_init(told["child-pid"])
            if "exit-code" in told:
                self.inner_code = told["exit-code"]
        return bool(data)

    def _found_init(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            if parent_of(pid) == self.pid:
                self.init_fd, self.init_pid = fd, pid

    def release(self) -> None:
        """Let the command begin. An ordinary user's process limit is set here, on the first process inside: set earlier
        it would count all that this user runs on the host. (Root's sandboxes have users of their own.)"""
        if self.plan["uid"] is None:
            nproc = self.plan["nproc"]
            with contextlib.suppress(ProcessLookupError):  # it could not be set up, and has ended
                resource.prlimit(self.init_pid, resource.RLIMIT_NPROC, (nproc, nproc))
        with contextlib.suppress(OSError):
            os.write(self._block_fd, b"1")
        os.close(self._block_fd)

    def terminate(self) -> bool:
        """Ask everything inside to end; False where there is too much to be polite to (a fork bomb). Each pid is
        looked at again once it is held, so that no stranger is hit."""
        family = descendants(self.init_pid) if self.init_pid else []
        if not 0 < len(family) <= POLITE_TO:
            return False
        known = {self.init_pid, *family}
        for pid in family:
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(pid)
                try:
                    if parent_of(pid) in known:
                        signal.pidfd_send_signal(fd, signal.SIGTERM)
                finally:
                    os.close(fd)
        return True

    def kill(self) -> None:
        """End everything: the death of a PID namespace's first process is the death of all."""
        for fd in (self.init_fd, self.pidfd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(fd, signal.SIGKILL)

    def reap(self) -> None:
        """Collect ended children, the adopted ones too."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.pid:
                    self.wait_status = status

    @property
    def exit_code(self) -> int:
        """The shell's exit code, 128+N after signal N."""
        if self.inner_code is not None:
            return self.inner_code
        if self.wait_status is None:
            return 137
        code = os.waitstatus_to_exitcode(self.wait_status)
        return code if code >= 0 else 128 - code


def become_sandbox(plan: dict[str, Any], keeper: int, out_w: int, status_w: int, block_r: int) -> NoReturn:
    """In the forked child: take limits, leave root, become the sandbox's monitor. Never returns."""
    try:
        for name in ("SIGPIPE", "SIGXFSZ", "SIGTERM", "SIGHUP", "SIGINT"):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.umask(0o022)
        os.nice(NICE)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")  # when memory ends, the sandbox goes first
        for procs in plan["cgroups"]:
            with open(procs, "w") as file:
                file.write("0")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nofile = min(plan["nofile"], resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))
        fds = [
            os.open("/dev/null", os.O_RDONLY),
            out_w,
            out_w,
            os.open(plan["seccomp"], os.O_RDONLY),
            status_w,
            block_r,
        ]
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in fds]
        if plan["uid"] is not None:
            stage(plan["stage"])
            resource.setrlimit(resource.RLIMIT_NPROC, (plan["nproc"], plan["nproc"]))
            os.setgroups([])
            os.setresgid(plan["uid"], plan["uid"], plan["uid"])
            os.setresuid(plan["uid"], plan["uid"], plan["uid"])
        _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
        if os.getppid() != keeper:
            os._exit(125)
        os.chdir("/")
        for number, fd in enumerate(high):
            os.dup2(fd, number)
        os.closerange(BLOCK_FD + 1, 1 << 20)
        os.execve(plan["argv"][0], plan["argv"], {})
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(out_w, f"keeper: {error}\n".encode())
    os._exit(125)


def stage(binds: list[list[str]]) -> None:
    """As root, in a mount namespace of our own: put what the sandbox may see under `STAGE`, so that its user needs no
    way through private folders. `binds` is pairs of (source, name under STAGE)."""
    _check(_libc.unshare(CLONE_NEWNS), "unshare")
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount private")
    sources = [(os.open(source, os.O_PATH | os.O_CLOEXEC), name) for source, name in binds]
    _check(_libc.mount(b"stage", STAGE.encode(), b"tmpfs", 0, b"mode=0755,size=1m"), "mount stage")
    for fd, name in sources:
        target = f"{STAGE}/{name}"
        os.makedirs(target, 0o755)
        _check(
            _libc.mount(f"/proc/self/fd/{fd}".encode(), target.encode(), None, MS_BIND | MS_REC, None), f"bind {name}"
        )


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
        if os.path.exists(self.path("kill")):
            return True
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
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        output = Output(self.path("output.bin"), self.plan["cap_bytes"])
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

    @staticmethod
    def copy(command: Command, output: Output) -> bool:
        """One piece of output; False at its end."""
        try:
            data = os.read(command.output_fd, CHUNK)
        except BlockingIOError:
            return True
        output.add(data)
        return bool(data)

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
        while select.select([command.output_fd], [], [], 1.0)[0] and self.copy(command, output):
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
        durable_json(
            self.path("exit.json"),
            {
                "exit_code": code,
                "reason": reason,
                "total_bytes": total,
                "duration_ms": duration_ms,
                "started_at": self.started_at,
            },
        )


def main() -> NoReturn:
    """Entry: the folder is the argument, the plan comes by stdin."""
    for name in ("SIGINT", "SIGHUP", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    plan = json.loads(sys.stdin.buffer.read())
    Keeper(os.path.abspath(sys.argv[1]), plan).run()
    os._exit(0)


if __name__ == "__main__":
    main()
