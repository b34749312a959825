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
_REC, _PRIVATE = 0x4000, 0x40000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


class Apart:
    """What a child does before it executes; build it in the parent."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._uid, self._gid = os.geteuid(), os.getegid()

    def with_small_disk(self, place: Path, size_mb: int) -> Callable[[], None]:
        """A tmpfs of that size at `place`, which nobody else sees."""

        def enter() -> None:
            self._unshare(NEWNS)
            self._check(self._libc.mount(b"none", b"/", None, _REC | _PRIVATE, None))
            options = f"size={size_mb}m,mode=755".encode()
            self._check(self._libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, options))

        return enter

    def offline(self) -> Callable[[], None]:
        """Nothing but the loopback."""

        def enter() -> None:
            self._unshare(NEWNET)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))

        return enter

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
