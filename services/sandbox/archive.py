"""Unpacking an uploaded tar into a workspace: everything is looked at before anything is written."""

import os
import posixpath
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox.beneath import Root, faults, workspace
from services.sandbox.files import journaled
from services.sandbox.home import Home
from services.sandbox.records import FileJournal, write

MAX_BYTES = 2 << 30
"""What an archive may hold, unpacked; and what it may weigh itself."""
MAX_ENTRIES = 200_000
MAX_HEADER_BYTES = 1 << 20
CHUNK = 1 << 20
E = ErrorCode
_LONG = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class _Info(tarfile.TarInfo):
    """Refuses headers of absurd size before they are read into memory."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in _LONG and self.size > MAX_HEADER_BYTES:
            raise LonghaulError(E.INVALID_ARCHIVE, "the archive holds a header of absurd size")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def unpack(home: Home, key: str, uploaded: Path, sha256: str) -> None:
    """Unpack `uploaded` (a file of `staging`) and delete it. Once per `key`; a try that was cut is done again, which
    writes the same files.

    Raises:
        LonghaulError: ``INVALID_ARCHIVE``, ``PATH_ESCAPE``, ``DISK_FULL``, ``PERMISSION_DENIED``.
    """
    try:
        entry = journaled(home, key, sha256)
        if entry is not None and entry.done:
            return
        with _members(uploaded) as members:
            inspect(members)
        with _members(uploaded) as members, workspace(home) as root:
            for archive, member in members:
                _place(root, archive, member)
        write(home.journal(key), FileJournal(key=key, request_sha256=sha256, done=True))
    finally:
        uploaded.unlink(missing_ok=True)


Members = Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]


@contextmanager
def _members(path: Path) -> Iterator[Members]:
    """The archive's members, in order, as a stream; broken archives raise ``INVALID_ARCHIVE``."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r|gz" if packed else "r|", tarinfo=_Info) as archive:
                yield _bounded(archive)
    except (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
        # RecursionError: tarfile calls itself for each of a row of extended headers
        raise LonghaulError(E.INVALID_ARCHIVE, f"this is not a sound tar archive: {error}") from error
    except OSError as error:  # gzip's own faults have no number
        if error.errno is not None:
            raise
        raise LonghaulError(E.INVALID_ARCHIVE, f"this is not a sound archive: {error}") from error


def _bounded(archive: tarfile.TarFile) -> Members:
    while (member := archive.next()) is not None:
        archive.members.clear()  # type: ignore[attr-defined]  # tarfile keeps every member it has seen
        yield archive, member


def inspect(members: Members) -> None:
    """Refuse what must not be unpacked.

    Raises:
        LonghaulError: ``INVALID_ARCHIVE`` (too large, too many, special files), ``PATH_ESCAPE`` (names or links out).
    """
    size = count = 0
    for archive, member in members:
        count += 1
        size += max(0, member.size) + 512
        if size > MAX_BYTES or count > MAX_ENTRIES:
            raise LonghaulError(E.INVALID_ARCHIVE, f"more than {MAX_BYTES >> 30} GiB or {MAX_ENTRIES} entries")
        _name(member.name)
        if member.issym():
            _link_target(member)
        elif member.islnk():
            _name(member.linkname)
        elif member.isreg():
            _read_through(archive, member)
        elif not member.isdir():
            raise LonghaulError(E.INVALID_ARCHIVE, f"{member.name}: devices, FIFOs and such cannot be unpacked")
    if count == 0:
        raise LonghaulError(E.INVALID_ARCHIVE, "the archive is empty")


def _read_through(archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    """See that the content is whole: the end of a cut archive looks to `tarfile` like the end of a sound one."""
    content = archive.extractfile(member)
    while content is not None and content.read(CHUNK):
        pass


def _name(name: str) -> str:
    """A member's name, normal and relative."""
    plain = posixpath.normpath(name)
    if "\0" in name or plain == ".." or plain.startswith(("/", "../")):
        raise LonghaulError(E.PATH_ESCAPE, f"{name}: the name leads out of the workspace")
    return plain


def _link_target(member: tarfile.TarInfo) -> str:
    target = member.linkname
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(_name(member.name)), target))
    if not target or "\0" in target or inside == ".." or inside.startswith(("/", "../")):
        raise LonghaulError(E.PATH_ESCAPE, f"{member.name}: the link leads out of the workspace")
    return target


def _place(root: Root, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    name = _name(member.name)
    if name == ".":
        return
    with faults(name):
        if member.isdir():
            os.close(root.folder(name, make=True, links=False))
            return
        parent, _, leaf = name.rpartition("/")
        folder = root.folder(parent, make=True, links=False)
        try:
            _clear(folder, leaf)
            _make(root, folder, leaf, archive, member)
        finally:
            os.close(folder)


def _clear(folder: int, leaf: str) -> None:
    """Take away what has the name: a file or a link is replaced, never written through."""
    try:
        os.unlink(leaf, dir_fd=folder)
    except FileNotFoundError:
        return
    except PermissionError as error:
        raise IsADirectoryError(21, "a folder has this name") from error


def _make(root: Root, folder: int, leaf: str, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    if member.issym():
        os.symlink(_link_target(member), leaf, dir_fd=folder)
        return
    if member.islnk():  # a copy: no two names for one file
        fd, info = root.regular(_name(member.linkname), links=False)
        with os.fdopen(fd, "rb") as source:
            _write(folder, leaf, source, info.st_mode, info.st_mtime)
        return
    content = archive.extractfile(member)
    if content is None:
        raise LonghaulError(E.INVALID_ARCHIVE, f"{member.name}: no content")
    _write(folder, leaf, content, member.mode, member.mtime)


def _write(folder: int, leaf: str, source: IO[bytes], mode: int, mtime: float) -> None:
    fd = os.open(leaf, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    with os.fdopen(fd, "wb") as file:
        while data := source.read(CHUNK):
            file.write(data)
        file.flush()
        os.fchmod(fd, (mode & 0o777) | 0o600)
        when = min(max(mtime, 0), 1 << 33)
        os.utime(fd, (when, when))
