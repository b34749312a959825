"""A folder as it is: every entry with its state, and the content of those files of which it is not known.

Everything is opened beneath the folder's top and no link is followed. Files are read, never mapped: one that shrinks
under a mapping would end the process.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from pyfastcdc import FastCDC

from services.sandbox.beneath import Root
from services.sandbox.remembered import CONTENT, CTIME, INODE, KIND, RACY_NS, SIZE, STATE, Memory, Row
from services.sandbox.tree import written
from services.snapshots.faults import cannot_be_kept
from services.snapshots.format import HOLE

WHOLE_BYTES = 1 << 20
"""A file up to this size is one chunk; a larger one is cut where its content says."""
CUT_MIN, CUT_MEAN, CUT_MAX = 64 << 10, 256 << 10, 1 << 20
MAX_ENTRIES = 1_000_000
_WINDOW = 8 << 20
_BATCH_BYTES = 2 << 20
_BATCH = 512
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC

Piece = bytes | memoryview


@dataclass(slots=True)
class Slot:
    """One chunk of a file; its digest comes when it is stored."""

    length: int
    digest: bytes = HOLE


@dataclass(slots=True)
class Wanted:
    """A file whose content has to be read: its folder and name, its row, and the chunks that were found."""

    folder: str
    name: str
    row: Row
    slots: list[Slot] = field(default_factory=list)

    @property
    def path(self) -> str:
        """From the top."""
        return join(self.folder, self.name)


@dataclass
class Scan:
    """What was found: rows per folder (a folder stands before those below it), and the files to read."""

    folders: dict[str, dict[str, Row]] = field(default_factory=dict)
    wanted: list[Wanted] = field(default_factory=list)


def scan(root: Root, memory: Memory, now_ns: int, doors: contextlib.ExitStack) -> Scan:
    """Look at everything. `now_ns` is the file system's clock. Special files are left out. What its owner has closed is
    opened until `doors` ends, so that it is kept all the same.

    Raises:
        LonghaulError: ``SNAPSHOT_FAILED`` for what no snapshot can hold.
    """
    found, queue, count = Scan(), [""], 0
    while queue:
        at = queue.pop()
        rows = found.folders[at] = _rows(root, at, doors)
        count += len(rows)
        if count > MAX_ENTRIES:
            raise cannot_be_kept(f"the workspace has more than {MAX_ENTRIES} entries")
        before = memory.folders.get(at, ("", {}))[1]
        for name, row in rows.items():
            kind = row[STATE][KIND]
            if kind == "d":
                queue.append(join(at, name))
            elif kind == "f":
                known = before.get(name)
                if known is not None and known[STATE] == row[STATE]:
                    row[CONTENT] = known[CONTENT]
                else:
                    found.wanted.append(Wanted(at, name, row))
    for file in found.wanted:
        state = file.row[STATE]
        if state[CTIME] > now_ns - RACY_NS:
            state[CTIME] = 0  # will be read again the next time
    return found


def _rows(root: Root, at: str, doors: contextlib.ExitStack) -> dict[str, Row]:
    with _opened(root, at or ".", os.O_RDONLY | os.O_DIRECTORY, doors) as folder:
        try:
            return _listed(folder)
        except PermissionError:  # it can be read but not entered
            _open_up(root, at or ".", doors)
            return _listed(folder)


def _listed(folder: int) -> dict[str, Row]:
    with os.scandir(folder) as entries:
        return {entry.name: row for entry in entries if (row := _row(folder, entry)) is not None}


def _row(folder: int, entry: "os.DirEntry[str]") -> Row | None:
    info = entry.stat(follow_symlinks=False)
    mode = info.st_mode
    if stat.S_ISREG(mode):
        return [["f", mode & 0o777, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns], None]
    if stat.S_ISDIR(mode):
        return [["d", mode & 0o777, 0, 0, info.st_mtime_ns, 0], None]
    if stat.S_ISLNK(mode):
        target = os.readlink(entry.name, dir_fd=folder)
        return [["l", 0, 0, 0, info.st_mtime_ns, 0], os.fsencode(target).hex()]
    return None


def read(root: Root, wanted: list[Wanted]) -> Iterator[tuple[list[Piece], list[Slot]]]:
    """The content of these files in batches of a few megabytes, each with the slots that its pieces fill.

    Raises:
        LonghaulError: ``SNAPSHOT_FAILED`` where a file is not what it was a moment ago.
    """
    pieces: list[Piece] = []
    slots: list[Slot] = []
    size = 0
    for file, piece in _pieces(root, wanted):
        slot = Slot(len(piece))
        file.slots.append(slot)
        pieces.append(piece)
        slots.append(slot)
        size += len(piece)
        if size >= _BATCH_BYTES or len(pieces) >= _BATCH:
            yield pieces, slots
            pieces, slots, size = [], [], 0
    if pieces:
        yield pieces, slots


def _pieces(root: Root, wanted: list[Wanted]) -> Iterator[tuple[Wanted, Piece]]:
    """The pieces of files, each folder being opened once."""
    for at, files in groupby(wanted, key=attrgetter("folder")):
        with contextlib.ExitStack() as doors, _opened(root, at or ".", os.O_RDONLY | os.O_DIRECTORY, doors) as folder:
            for file in files:
                fd = _open_file(root, folder, file)
                try:
                    for piece in _content(fd, file):
                        yield file, piece
                finally:
                    os.close(fd)


def _open_file(root: Root, folder: int, file: Wanted) -> int:
    try:
        return os.open(file.name, _READ, dir_fd=folder)
    except PermissionError:
        with contextlib.ExitStack() as doors:
            _open_up(root, file.path, doors)
            return os.open(file.name, _READ, dir_fd=folder)
    except OSError as error:
        raise _moving(file.path) from error


def _content(fd: int, file: Wanted) -> Iterator[Piece]:
    """The pieces of a file; its holes are put down as they are passed."""
    size, info = file.row[STATE][SIZE], os.fstat(fd)
    if not stat.S_ISREG(info.st_mode) or (info.st_ino, info.st_size) != (file.row[STATE][INODE], size):
        raise _moving(file.path)
    if size <= WHOLE_BYTES:
        data = os.read(fd, size + 1) if size else b""
        if len(data) != size:
            raise _moving(file.path)
        if data:
            yield data
        return
    at = 0
    for start, end in written(fd):
        if start > at:
            file.slots.append(Slot(start - at))
        yield from _cut(fd, start, min(end, size), file.path)
        at = min(end, size)
    if at < size:
        file.slots.append(Slot(size - at))


def _cut(fd: int, at: int, end: int, path: str) -> Iterator[Piece]:
    """A stretch of a file, cut where its content says, so that an insertion moves no later cut."""
    cutter = FastCDC(CUT_MEAN, min_size=CUT_MIN, max_size=CUT_MAX)
    while at < end:
        data = os.pread(fd, min(_WINDOW, end - at), at)
        if not data:
            raise _moving(path)
        last = at + len(data) == end
        pieces = [chunk.data for chunk in cutter.cut_buf(data)]
        if not last and len(pieces) > 1:
            pieces.pop()  # cut by the window, not by the content
        for piece in pieces:
            at += len(piece)
            yield piece


@contextlib.contextmanager
def _opened(root: Root, path: str, flags: int, doors: contextlib.ExitStack) -> Iterator[int]:
    """Open what is there."""
    try:
        fd = root.open(path, flags, links=False)
    except PermissionError:
        _open_up(root, path, doors)
        fd = root.open(path, flags, links=False)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise cannot_be_kept(f"a path in the workspace is too long: {path[:200]}…") from error
        raise _moving(path) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _open_up(root: Root, path: str, doors: contextlib.ExitStack) -> None:
    """Let its owner read it until `doors` ends."""
    with _held(root, path) as same:
        info = os.stat(same)
        mode = stat.S_IMODE(info.st_mode)
        try:
            os.chmod(same, mode | (0o500 if stat.S_ISDIR(info.st_mode) else 0o400))
        except OSError as error:
            raise cannot_be_kept(f"{path} cannot be read") from error
    doors.callback(_close, root, path, mode)


def _close(root: Root, path: str, mode: int) -> None:
    with _held(root, path) as same:
        os.chmod(same, mode)


@contextlib.contextmanager
def _held(root: Root, path: str) -> Iterator[str]:
    """A name by which to change what is there, and nothing that is put in its place."""
    fd = root.open(path, os.O_PATH, links=False)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _moving(path: str) -> Exception:
    return cannot_be_kept(f"{path} changes while it is read; try again when nothing runs in the sandbox")


def join(at: str, name: str) -> str:
    """The path of an entry of a folder; the top's is empty."""
    return f"{at}/{name}" if at else name
