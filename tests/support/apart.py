"""A process apart: in namespaces of its own (mounts, network), without root where the kernel allows it."""

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

NEWNS, NEWNET = 0x20000, 0x40000000
_NEWUSER = 0x10000000
_REC, _PRIVATE, _BIND = 0x4000, 0x40000, 0x1000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


class Apart:
    """What a child does before it executes; build it in the parent."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._uid, self._gid = os.geteuid(), os.getegid()

    def with_small_disk(self, place: Path, size_mb: int) -> Callable[[], None]:
        """A tmpfs of that size at `place`, which nobody else sees, for its owner alone to write to."""

        def enter() -> None:
            self._own_mounts()
            options = f"size={size_mb}m,mode=755".encode()
            self._check(self._libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, options))

        return enter

    def with_file(self, place: Path, file: Path) -> Callable[[], None]:
        """Another file at `place`."""

        def enter() -> None:
            self._own_mounts()
            self._check(self._libc.mount(os.fsencode(file), os.fsencode(place), None, _BIND, None))

        return enter

    def offline(self, *, loopback: bool = True) -> Callable[[], None]:
        """Nothing but the loopback, or not even that."""

        def enter() -> None:
            self._unshare(NEWNET)
            if not loopback:
                return
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))

        return enter

    def _own_mounts(self) -> None:
        self._unshare(NEWNS)
        self._check(self._libc.mount(b"none", b"/", None, _REC | _PRIVATE, None))

    def _unshare(self, flags: int) -> None:
        self._check(self._libc.unshare(flags | (_NEWUSER if self._uid else 0)))
        if self._uid:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{self._uid} {self._uid} 1")
            Path("/proc/self/gid_map").write_text(f"{self._gid} {self._gid} 1")

    def _check(self, result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
