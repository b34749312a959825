"""Whole folders: copied and deleted without recursion and without following links, however deep they are."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from services.sandbox.beneath import Root

CHUNK = 1 << 20
_CANNOT_SHARE = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}


def delete(path: Path) -> None:
    """Delete a folder with all in it, read-only folders too. Nothing may run in it any more. Again does nothing.

    Folders found below are moved up to the top before they are emptied, so depth does not matter.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        os.fchmod(top, 0o700)
        moved = 0
        while names := os.listdir(top):
            for name in names:
                moved = _delete_one(top, name, moved)
    finally:
        os.close(top)
    os.rmdir(path)


def _delete_one(top: int, name: str, moved: int) -> int:
    if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
        os.unlink(name, dir_fd=top)
        return moved
    _unlock(top, name)
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        for inner in os.listdir(folder):
            if stat.S_ISDIR(os.lstat(inner, dir_fd=folder).st_mode):
                _unlock(folder, inner)  # moving a folder writes its own ".."
                while _exists(top, f".d{moved}"):
                    moved += 1
                os.rename(inner, f".d{moved}", src_dir_fd=folder, dst_dir_fd=top)
            else:
                os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=top)
    return moved


def _unlock(parent: int, name: str) -> None:
    """Give us all rights to a folder. It is held while that is done: a link in its place is never followed."""
    folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{folder}", 0o700)
    finally:
        os.close(folder)


def _exists(folder: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def copy(source: Path, target: Path, uid: int | None) -> None:
    """Copy the files, folders and links of `source` into the empty folder `target`, with modes and times; special
    files are left out. As root everything then belongs to `uid`."""
    with Root(source) as before, Root(target) as after:
        queue = ["."]
        done: list[tuple[str, os.stat_result]] = []
        while queue:
            queue += _copy_folder(before, after, queue.pop(), done, uid)
        for path, info in reversed(done):  # children first: times and modes of a folder change with its entries
            fd = after.open(path, os.O_RDONLY | os.O_DIRECTORY, links=False)
            try:
                os.utime(fd, ns=(info.st_atime_ns, info.st_mtime_ns))
                os.fchmod(fd, stat.S_IMODE(info.st_mode) & 0o777)
            finally:
                os.close(fd)


def _copy_folder(
    before: Root, after: Root, path: str, done: list[tuple[str, os.stat_result]], uid: int | None
) -> list[str]:
    """Copy one folder's entries; the folders among them are returned, made and still empty."""
    source = before.open(path, os.O_RDONLY | os.O_DIRECTORY, links=False)
    target = after.open(path, os.O_RDONLY | os.O_DIRECTORY, links=False)
    below: list[str] = []
    try:
        for name in os.listdir(source):
            with contextlib.suppress(FileNotFoundError):
                if _copy_entry(source, target, name, uid):
                    below.append(f"{path}/{name}")
        done.append((path, os.fstat(source)))
    finally:
        os.close(source)
        os.close(target)
    return below


def _copy_entry(source: int, target: int, name: str, uid: int | None) -> bool:
    info = os.lstat(name, dir_fd=source)
    is_folder = stat.S_ISDIR(info.st_mode)
    if is_folder:
        os.mkdir(name, 0o700, dir_fd=target)
    elif stat.S_ISLNK(info.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        os.utime(name, ns=(info.st_atime_ns, info.st_mtime_ns), dir_fd=target, follow_symlinks=False)
    elif stat.S_ISREG(info.st_mode):
        _copy_file(source, target, name, info)
    else:
        return False
    if uid is not None:
        os.chown(name, uid, uid, dir_fd=target, follow_symlinks=False)
    return is_folder


def _copy_file(source: int, target: int, name: str, info: os.stat_result) -> None:
    read = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=source)
    write = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=target)
    try:
        size = 0
        for start, end in written(read):
            size = _copy_span(read, write, start, end)
        os.ftruncate(write, max(size, os.fstat(read).st_size))  # a hole at the end
        os.fchmod(write, stat.S_IMODE(info.st_mode) & 0o777)
        os.utime(write, ns=(info.st_atime_ns, info.st_mtime_ns))
    finally:
        os.close(read)
        os.close(write)


def written(fd: int) -> Iterator[tuple[int, int]]:
    """The parts of a file that are not holes: one that claims a terabyte and holds nothing costs nothing to copy."""
    end = 0
    while True:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            raise
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, end


def _shared(read: int, write: int, at: int, end: int) -> int:
    try:
        while at < end and (done := os.copy_file_range(read, write, end - at, at, at)):
            at += done
    except OSError as error:
        if error.errno not in _CANNOT_SHARE:
            raise
    return at


def _copy_span(read: int, write: int, start: int, end: int) -> int:
    """Copy the bytes from `start` up to `end`; where it came to, which is less for a file that shrinks. In the kernel
    where it can, which shares them where the file system does (btrfs, XFS)."""
    at = _shared(read, write, start, end)
    while at < end and (data := os.pread(read, min(CHUNK, end - at), at)):
        view = memoryview(data)
        while view:
            done = os.pwrite(write, view, at)
            view, at = view[done:], at + done
    return at
