"""Files of a workspace as the sandbox's own user sees them: no name leads out of it, whatever links it holds.

Paths are resolved by the kernel (``openat2`` with RESOLVE_BENEATH), so there is no moment between check and use. As
root the calling thread acts with the sandbox's file-system user (``setfsuid`` is per thread), so that what is made
belongs to it and what it may not read is not read.
"""

import contextlib
import ctypes
import errno
import os
import platform
import posixpath
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import WORKSPACE
from services.sandbox.home import Home

_OPENAT2 = {"x86_64": 437, "aarch64": 437}
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_libc = ctypes.CDLL(None, use_errno=True)

E = ErrorCode
_CODES = {
    errno.ENOENT: (E.FILE_NOT_FOUND, "no such file"),
    errno.ENOTDIR: (E.FILE_NOT_FOUND, "a part of the path is not a folder"),
    errno.EXDEV: (E.PATH_ESCAPE, "the path leads out of the workspace"),
    errno.ELOOP: (E.PATH_ESCAPE, "the path goes through a link that may not be followed"),
    errno.EISDIR: (E.NOT_A_FILE, "this is a folder"),
    errno.ENXIO: (E.NOT_A_FILE, "this is not a regular file"),
    errno.EACCES: (E.PERMISSION_DENIED, "permission denied"),
    errno.EPERM: (E.PERMISSION_DENIED, "permission denied"),
    errno.ENOSPC: (E.DISK_FULL, "the disk is full"),
    errno.EDQUOT: (E.DISK_FULL, "the disk quota is used up"),
    errno.ENAMETOOLONG: (E.INVALID_ARGUMENTS, "the path is too long"),
    errno.EINVAL: (E.INVALID_ARGUMENTS, "this is not a path"),
    errno.EEXIST: (E.NOT_A_FILE, "something else has this name"),
    errno.ENOTEMPTY: (E.NOT_A_FILE, "this is a folder"),
}


@contextmanager
def faults(path: str) -> Iterator[None]:
    """Turn the system's errors about a workspace path into ours."""
    try:
        yield
    except OSError as error:
        code, text = _CODES.get(error.errno or 0, (None, ""))
        if code is None:
            raise
        raise LonghaulError(code, f"{path}: {text}") from error


@contextmanager
def acting_as(uid: int | None) -> Iterator[None]:
    """Touch files as `uid` in this thread (None: as we are). No awaiting inside."""
    if uid is None:
        yield
        return
    before = os.umask(0o022)
    _libc.setfsgid(uid)
    _libc.setfsuid(uid)
    try:
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(0)
        os.umask(before)


def relative(path: str) -> str:
    """A path as the model wrote it, relative to the workspace.

    Raises:
        LonghaulError: ``PATH_ESCAPE`` for another absolute path; ``INVALID_ARGUMENTS`` for none at all.
    """
    if "\0" in path or not path:
        raise LonghaulError(E.INVALID_ARGUMENTS, "this is not a path")
    if path == WORKSPACE or path.startswith(WORKSPACE + "/"):
        path = path[len(WORKSPACE) :].lstrip("/") or "."
    plain = posixpath.normpath(path)
    if plain.startswith(("/", "../")) or plain == "..":
        raise LonghaulError(E.PATH_ESCAPE, f"{path}: only paths in {WORKSPACE} can be used here")
    return path


class Root:
    """A held folder; everything is opened below it. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def __enter__(self) -> "Root":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def open(self, path: str, flags: int, mode: int = 0, *, links: bool = True) -> int:
        """A descriptor for `path`. Never blocks on a FIFO; never follows a link out, nor any where not `links`."""
        return openat2(self.fd, path, flags, mode, links=links)

    def folder(self, path: str, *, make: bool = False, links: bool = True) -> int:
        """A descriptor for a folder, made with its parents where `make`."""
        flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            return self.open(path or ".", flags, links=links)
        except FileNotFoundError:
            if not make:
                raise
        parent, _, name = path.rstrip("/").rpartition("/")
        above = self.folder(parent, make=True, links=links)
        try:
            if name not in ("", ".", ".."):
                # made at the same moment by a command, or a dangling link: the open below tells
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=above)
        finally:
            os.close(above)
        return self.open(path, flags, links=links)

    def target(self, path: str) -> tuple[int, str, os.stat_result | None]:
        """Where a file of this name goes: its folder (made where missing), its name there, and what has it now.

        A link to a file is followed, as a shell's ``>`` does; one that leads out is EXDEV. A folder is EISDIR.
        """
        real = self._followed(path)
        parent, _, name = real.rpartition("/")
        if name in ("", ".", ".."):
            raise IsADirectoryError(errno.EISDIR, "this names a folder")
        folder = self.folder(parent, make=True)
        try:
            before = os.lstat(name, dir_fd=folder)
        except FileNotFoundError:
            return folder, name, None
        except OSError:
            os.close(folder)
            raise
        if stat.S_ISDIR(before.st_mode):
            os.close(folder)
            raise IsADirectoryError(errno.EISDIR, "this is a folder")
        return folder, name, before

    def _followed(self, path: str) -> str:
        try:
            fd = self.open(path, os.O_PATH)
        except FileNotFoundError:
            return path
        try:
            real, root = (os.readlink(f"/proc/self/fd/{number}") for number in (fd, self.fd))
        finally:
            os.close(fd)
        return real[len(root) + 1 :] if real.startswith(root + "/") else path

    def regular(self, path: str, *, links: bool = True) -> tuple[int, os.stat_result]:
        """An open regular file and its state; ENXIO or EISDIR for anything else."""
        fd = self.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY, links=links)
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode):
            return fd, info
        os.close(fd)
        raise OSError(errno.EISDIR if stat.S_ISDIR(info.st_mode) else errno.ENXIO, "not a regular file")


def opened(home: Home) -> Root:
    """The workspace, held open. Touch what is in it only inside `acting_as`.

    Raises:
        LonghaulError: ``SANDBOX_LOST`` where it is not there any more.
    """
    try:
        return Root(home.workspace)
    except OSError as error:
        raise LonghaulError(E.SANDBOX_LOST, "the files of this sandbox are gone") from error


@contextmanager
def workspace(home: Home) -> Iterator[Root]:
    """The workspace with the sandbox's own rights, for what needs nothing else."""
    with opened(home) as root, acting_as(home.meta.uid):
        yield root


def openat2(folder: int, path: str, flags: int, mode: int = 0, *, links: bool = True) -> int:
    """``openat2(2)`` beneath `folder`.

    Raises:
        OSError: as the kernel says; EXDEV for a path that leads out.
    """
    resolve = _BENEATH | _NO_MAGICLINKS | (0 if links else _NO_SYMLINKS)
    how = struct.pack("<QQQ", flags | os.O_CLOEXEC, mode, resolve)
    number = _OPENAT2[platform.machine()]
    for _ in range(100):
        fd = _libc.syscall(
            ctypes.c_long(number), ctypes.c_int(folder), os.fsencode(path), how, ctypes.c_size_t(len(how))
        )
        if fd >= 0:
            return int(fd)
        if ctypes.get_errno() != errno.EAGAIN:  # EAGAIN: something was renamed while the kernel looked
            break
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), path)


def supported() -> bool:
    """Whether this kernel has ``openat2`` (Linux 5.6)."""
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.close(openat2(folder, ".", os.O_RDONLY | os.O_DIRECTORY))
    except (OSError, KeyError):
        return False
    else:
        return True
    finally:
        os.close(folder)
