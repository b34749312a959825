"""The command of a keeper as a process: started in its sandbox, watched, ended with all that it left behind.

The standard library only: a keeper is started without anything else.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
from typing import Any, NoReturn

SECCOMP_FD, STATUS_FD, BLOCK_FD = 3, 4, 5  # the numbers that the plan's argv names
STAGE = "/tmp"  # where root gathers what the sandbox's user must reach; in a private mount namespace
MS_BIND, MS_REC, MS_PRIVATE, CLONE_NEWNS = 4096, 16384, 1 << 18, 0x20000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLITE_TO = 100
NICE = 5  # below the keeper, which must get its turn beside a fork bomb

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of whatever a command leaves behind."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


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
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            os.makedirs(target, 0o755)
        else:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        _check(
            _libc.mount(f"/proc/self/fd/{fd}".encode(), target.encode(), None, MS_BIND | MS_REC, None), f"bind {name}"
        )
