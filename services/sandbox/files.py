"""Reading, writing and editing single files of a workspace.

A keyed change is made in `staging` and moved in by one rename. Its journal entry, with the digest of what will be
there, is on disk before the rename; after a crash the staged file tells whether the rename took place (still there:
it did not, and the change is made anew). So a repeat answers what the first try did and does nothing twice.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.ids import short_digest
from agents.contracts.sandbox import EditFile, FileChange, FileEntry, FileText, ReadFile, WriteFile
from services.sandbox.beneath import Root, acting_as, faults, opened, relative, workspace
from services.sandbox.home import Home
from services.sandbox.records import FileJournal, read, write

MAX_TEXT_BYTES = 32 << 20
"""What `read_file` and `edit_file` load at most."""
MAX_SHOWN_BYTES = 1 << 20
"""What `read_file` answers at most."""
MAX_DOWNLOAD_BYTES = 1 << 30
CHUNK = 1 << 18


def read_text(home: Home, request: ReadFile) -> FileText:
    """Lines of a file.

    Raises:
        LonghaulError: ``FILE_NOT_FOUND``, ``NOT_A_FILE``, ``PATH_ESCAPE``, ``PERMISSION_DENIED``, ``FILE_TOO_LARGE``.
    """
    path = relative(request.path)
    with faults(request.path), workspace(home) as root:
        data, _ = _load(root, path)
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    start = max(0, request.offset - 1)
    chosen = lines[start : start + max(0, request.limit)]
    text = "".join(chosen)
    short = len(chosen) < len(lines)
    if len(text) > MAX_SHOWN_BYTES:
        text, short = text[:MAX_SHOWN_BYTES], True
    return FileText(path=path, text=text, total_lines=len(lines), total_bytes=len(data), truncated=short)


def _load(root: Root, path: str) -> tuple[bytes, os.stat_result]:
    fd, info = root.regular(path)
    with os.fdopen(fd, "rb") as file:
        if info.st_size > MAX_TEXT_BYTES:
            raise LonghaulError(ErrorCode.FILE_TOO_LARGE, f"{path} has {info.st_size} bytes; read a part by a command")
        data = file.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise LonghaulError(ErrorCode.FILE_TOO_LARGE, f"{path} grows as it is read; read a part by a command")
    return data, info


def write_text(home: Home, request: WriteFile) -> FileChange:
    """Create or replace a file. Faults as `read_text`, and ``DISK_FULL``."""
    data = _encoded(request.content)
    change = Change(home, request.key, request.path, _digest("write", request.path, data))
    return change.apply(lambda root, path: data)


def edit_text(home: Home, request: EditFile) -> FileChange:
    """Replace the only occurrence of `old`. Faults as `write_text`, and ``EDIT_NO_MATCH``, ``EDIT_AMBIGUOUS``."""
    old, new = _encoded(request.old), _encoded(request.new)

    def edited(root: Root, path: str) -> bytes:
        data, _ = _load(root, path)
        first = data.find(old) if old else -1
        if first < 0:
            raise LonghaulError(ErrorCode.EDIT_NO_MATCH, f"{request.path} does not hold the text to replace")
        if data.find(old, first + 1) >= 0:
            raise LonghaulError(ErrorCode.EDIT_AMBIGUOUS, f"{request.path} holds the text to replace more than once")
        return data[:first] + new + data[first + len(old) :]

    return Change(home, request.key, request.path, _digest("edit", request.path, old, new)).apply(edited)


def place(home: Home, key: str, path: str, uploaded: Path, sha256: str) -> None:
    """Move an uploaded file in. Journaled by `key`. Faults as `write_text`."""
    Change(home, key, path, _digest("place", path, sha256)).adopt(uploaded, sha256)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise LonghaulError(ErrorCode.INVALID_ARGUMENTS, "the text holds half a character") from error


def _digest(*parts: str | bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        whole.update(f"{len(data)}:".encode() + data)
    return whole.hexdigest()


class Change:
    """One keyed change of one file. The caller holds the sandbox's change lock: nothing else of ours comes between."""

    def __init__(self, home: Home, key: str, path: str, request_sha256: str) -> None:
        self._home = home
        self._key = key
        self._path = path
        self._request = request_sha256
        self._staged = home.staging / short_digest(key)

    def apply(self, content: Callable[[Root, str], bytes]) -> FileChange:
        """Make the change, or answer what it did before. `content` gives the new bytes."""
        if (before := self._answered()) is not None:
            return before
        path = relative(self._path)
        with faults(self._path), workspace(self._home) as root:
            data = content(root, path)
        with faults(self._path):
            spool(self._staged, data)
        return self._move_in(path, hashlib.sha256(data).hexdigest())

    def adopt(self, uploaded: Path, sha256: str) -> FileChange:
        """The same for content that is in a file of `staging` already."""
        if (before := self._answered()) is not None:
            return before
        path = relative(self._path)
        uploaded.rename(self._staged)
        return self._move_in(path, sha256)

    def _answered(self) -> FileChange | None:
        """What an earlier try did, or None where none took effect."""
        entry = journaled(self._home, self._key, self._request)
        if entry is None or (not entry.done and self._staged.exists()):
            return None
        return entry.change

    def _move_in(self, path: str, sha256: str) -> FileChange:
        uid, journal = self._home.meta.uid, self._home.journal(self._key)
        with opened(self._home) as root:
            with faults(self._path), acting_as(uid):
                folder, name, before = root.target(path)
            try:
                self._own(before)
                size = self._staged.stat().st_size
                change = FileChange(path=path, sha256=sha256, bytes=size, created=before is None)
                entry = FileJournal(key=self._key, request_sha256=self._request, change=change)
                write(journal, entry)
                with Root(self._home.staging) as staging, faults(self._path), acting_as(uid):
                    os.rename(self._staged.name, name, src_dir_fd=staging.fd, dst_dir_fd=folder)
                    os.fsync(folder)
            finally:
                os.close(folder)
        write(journal, entry.model_copy(update={"done": True}))
        return change

    def _own(self, before: os.stat_result | None) -> None:
        """The file keeps the mode that its name had, and belongs to the sandbox."""
        regular = before is not None and stat.S_ISREG(before.st_mode)
        self._staged.chmod(before.st_mode & 0o777 if before is not None and regular else 0o644)
        if self._home.meta.uid is not None:
            os.chown(self._staged, self._home.meta.uid, self._home.meta.uid)


def journaled(home: Home, key: str, request_sha256: str) -> FileJournal | None:
    """The journal's entry for a key.

    Raises:
        LonghaulError: ``VALIDATION_FAILED`` where the key was used for something else.
    """
    entry = read(home.journal(key), FileJournal)
    if entry is not None and entry.request_sha256 != request_sha256:
        raise LonghaulError(ErrorCode.VALIDATION_FAILED, f"the key {key} was used for another change")
    return entry


def spool(path: Path, data: bytes) -> None:
    """Write in place (never unlinked first: its presence has a meaning) and make it durable."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def entries(home: Home, limit: int) -> tuple[list[FileEntry], int]:
    """The first `limit` regular files in path order, ``.git`` left out, and how many there are."""
    with faults("."), workspace(home) as root:
        found = sorted(_walk(root))
    chosen = found[: max(0, limit)]
    return [FileEntry(path=path, bytes=size) for path, size in chosen], len(found)


def _walk(root: Root) -> Iterator[tuple[str, int]]:
    queue = [""]
    while queue:
        at = queue.pop()
        try:
            folder = root.open(at or ".", os.O_RDONLY | os.O_DIRECTORY, links=False)
        except OSError:
            continue  # not readable, or gone since
        try:
            with os.scandir(folder) as items:
                for item in items:
                    path = f"{at}/{item.name}" if at else item.name
                    if item.is_dir(follow_symlinks=False):
                        if item.name != ".git":
                            queue.append(path)
                    elif item.is_file(follow_symlinks=False):
                        size = item.stat(follow_symlinks=False).st_size
                        yield path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), size
        except FileNotFoundError:
            continue
        finally:
            os.close(folder)


def download(home: Home, path: str) -> tuple[int, int]:
    """A descriptor to read a file from, and its size. Faults as `read_text`; ``FILE_TOO_LARGE`` over 1 GiB."""
    with faults(path), workspace(home) as root:
        fd, info = root.regular(relative(path))
    if info.st_size > MAX_DOWNLOAD_BYTES:
        os.close(fd)
        raise LonghaulError(ErrorCode.FILE_TOO_LARGE, f"{path} has {info.st_size} bytes; at most 1 GiB can be fetched")
    os.set_blocking(fd, True)
    return fd, info.st_size
