"""Becomes a sandbox with a supervisor in it.

The process that calls `become` turns into the sandbox's bubblewrap. It has a session of its own and goes on when the
runner is killed; the leash ends it. In the sandbox's folder it leaves the socket at which its supervisor listens, and
it holds a lock for as long as it lives, so that there are never two. The standard library only: it must start fast.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import NoReturn

SECCOMP_FD, LISTEN_FD, LEASH_FD, LOCK_FD, LAST_FD = 3, 4, 5, 6, 7
SOCKET, LOCK, LAST = "supervisor.sock", "supervisor.lock", "supervisor.last"
IN_USE = 75
STAGE = "/tmp"  # where root gathers what the sandbox's user must reach; in a private mount namespace
MS_BIND, MS_REC, MS_PRIVATE, CLONE_NEWNS = 4096, 16384, 1 << 18, 0x20000
_TRIES, _PAUSE_S = 20, 0.005


@dataclass(frozen=True, slots=True)
class Launch:
    """What is needed to start one. `argv` may name the descriptors above; `uid` and `stage` are root's: the user to
    become, and (source, name) pairs to gather before that."""

    argv: list[str]
    folder: str
    leash_fd: int
    uid: int | None
    stage: list[tuple[str, str]]
    cgroups: list[str]
    seccomp: str


def address(folder_fd: int) -> str:
    """The socket's path, short whatever the folder's is (a socket's path has at most 107 bytes)."""
    return f"/proc/self/fd/{folder_fd}/{SOCKET}"


def in_use(folder: str | os.PathLike[str]) -> bool:
    """Whether a sandbox lives in this folder, or is just being started: whether its lock is held."""
    try:
        lock = os.open(os.path.join(folder, LOCK), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _hold(folder: int) -> int:
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=folder)
    for _ in range(_TRIES):  # who only looks whether it is held holds it for a moment
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        time.sleep(_PAUSE_S)
    sys.exit(IN_USE)


def _listen(folder: int) -> socket.socket:
    """Under the lock: what lies there is of one that is gone."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET, dir_fd=folder)
    listener = socket.socket(socket.AF_UNIX)
    os.umask(0o177)
    listener.bind(address(folder))
    listener.listen(8)
    return listener


def _join(launch: Launch) -> None:
    os.umask(0o022)
    for procs in launch.cgroups:
        with open(procs, "w") as file:
            file.write("0")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave_root(launch: Launch) -> None:
    if launch.uid is None:
        return
    stage(launch.stage)
    os.setgroups([])
    os.setresgid(launch.uid, launch.uid, launch.uid)
    os.setresuid(launch.uid, launch.uid, launch.uid)


def stage(binds: list[tuple[str, str]]) -> None:
    """As root, in a mount namespace of our own: put what the sandbox may see under `STAGE`, so that its user needs no
    way through private folders. `binds` is pairs of (source, name under STAGE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(CLONE_NEWNS), "unshare")
    _check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount private")
    sources = [(os.open(source, os.O_PATH | os.O_CLOEXEC), name) for source, name in binds]
    _check(libc.mount(b"stage", STAGE.encode(), b"tmpfs", 0, b"mode=0755,size=1m"), "mount stage")
    for fd, name in sources:
        target = f"{STAGE}/{name}"
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            os.makedirs(target, 0o755)
        else:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        _check(
            libc.mount(f"/proc/self/fd/{fd}".encode(), target.encode(), None, MS_BIND | MS_REC, None), f"bind {name}"
        )


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _place(fds: list[int]) -> None:
    """Give the descriptors the numbers that `argv` names; the standard ones lead nowhere, all others are closed."""
    null = os.open("/dev/null", os.O_RDWR)
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) if fd >= 0 else -1 for fd in (null, null, null, *fds)]
    for number, fd in enumerate(high):
        if number == 2:
            continue  # what bubblewrap has to say goes to the log
        if fd >= 0:
            os.dup2(fd, number)
        else:
            with contextlib.suppress(OSError):
                os.close(number)
    os.closerange(LAST_FD + 1, 1 << 20)


def become(launch: Launch) -> NoReturn:
    """Become the sandbox. Exits with `IN_USE` where one lives."""
    folder = os.open(launch.folder, os.O_RDONLY | os.O_DIRECTORY)
    lock = _hold(folder)
    listener = _listen(folder)
    last = os.open(LAST, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=folder)
    seccomp = os.open(launch.seccomp, os.O_RDONLY)
    for name in ("SIGPIPE", "SIGXFSZ", "SIGTERM", "SIGHUP", "SIGINT"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    _join(launch)
    _leave_root(launch)
    os.chdir("/")
    _place([seccomp, listener.fileno(), launch.leash_fd, lock, last])
    os.execve(launch.argv[0], launch.argv, {})
