"""Looking into a snapshot without a sandbox: what is in it, one file's bytes, what changed between two."""

from collections.abc import Iterator
from dataclasses import dataclass

from agents.contracts.artifact import BlobRef
from agents.contracts.errors import ErrorCode, LonghaulError
from services.snapshots.format import HOLE, Entry, File, Folder, Link
from services.snapshots.manifest import Manifest
from services.snapshots.reading import Reader, open_snapshot
from services.snapshots.shelf import Shelf

MAX_PARTS = 4_096
_ZEROS = bytes(1 << 20)


@dataclass(frozen=True)
class Change:
    """A path that is not the same in two snapshots; None stands for its absence."""

    path: bytes
    before: Entry | None
    after: Entry | None


class Look:
    """One snapshot, opened. Calls block; use it from one thread at a time."""

    def __init__(self, shelf: Shelf, ref: BlobRef) -> None:
        """Raises:
        LonghaulError: ``SNAPSHOT_NOT_FOUND``, ``SNAPSHOT_FAILED``, ``OBJECTS_UNAVAILABLE``; so do all calls.
        """
        self.manifest: Manifest
        self.reader: Reader
        self.manifest, self.reader = open_snapshot(shelf, ref)
        self.root = bytes.fromhex(self.manifest.root)

    def walk(self, after: bytes = b"") -> Iterator[tuple[bytes, Entry]]:
        """Every entry with its path, in the order of paths as the tree has it, those behind `after`."""
        start = after.split(b"/") if after else []
        stack: list[tuple[bytes, Iterator[Entry], list[bytes]]] = [(b"", iter(self.reader.tree(self.root)), start)]
        while stack:
            at, entries, rest = stack[-1]
            entry = next(entries, None)
            if entry is None:
                stack.pop()
                continue
            if rest and entry.name < rest[0]:
                continue
            path = at + entry.name
            inside = rest[1:] if rest and entry.name == rest[0] else []
            if not (rest and entry.name == rest[0]):
                yield path, entry
            if isinstance(entry, Folder):
                stack.append((path + b"/", iter(self.reader.tree(entry.tree)), inside))

    def find(self, path: bytes) -> Entry:
        """The entry at a path; links are not followed.

        Raises:
            LonghaulError: ``FILE_NOT_FOUND``.
        """
        parts = [part for part in path.split(b"/") if part not in (b"", b".")]
        tree: bytes | None = self.root
        found: Entry | None = None
        for part in parts[:MAX_PARTS]:
            entries = self.reader.tree(tree) if tree is not None else []
            found = next((entry for entry in entries if entry.name == part), None)
            tree = found.tree if isinstance(found, Folder) else None
        if found is None:
            raise LonghaulError(ErrorCode.FILE_NOT_FOUND, f"{path.decode(errors='replace')}: no such file")
        return found

    def file(self, path: bytes) -> File:
        """The regular file at a path. ``FILE_NOT_FOUND``, ``NOT_A_FILE``."""
        found = self.find(path)
        if not isinstance(found, File):
            what = f"a link to {found.target.decode(errors='replace')}" if isinstance(found, Link) else "a folder"
            raise LonghaulError(ErrorCode.NOT_A_FILE, f"{path.decode(errors='replace')}: this is {what}")
        return found

    def content(self, file: File, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        """The bytes of a file from `first` up to and with `last`, each chunk checked before any of it is given."""
        end = file.size if last is None else min(last + 1, file.size)
        at = 0
        for chunk in file.chunks:
            start, stop = max(first - at, 0), min(end - at, chunk.length)
            at += chunk.length
            if start >= stop:
                continue
            if chunk.digest == HOLE:
                yield from _zeros(stop - start)
            else:
                yield bytes(self.reader.get(chunk.digest)[start:stop])


def _zeros(count: int) -> Iterator[bytes]:
    while count:
        piece = min(count, len(_ZEROS))
        yield _ZEROS[:piece]
        count -= piece


def compare(before: Look | None, after: Look) -> Iterator[Change]:
    """What changed from one snapshot (None: from nothing) to another, in the order of paths. Folders that are equal are
    not read; times alone are no change."""
    stack: list[tuple[bytes, bytes | None, bytes | None]] = [(b"", before.root if before else None, after.root)]
    found: list[Change] = []
    while stack:
        at, old, new = stack.pop()
        if old == new:
            continue
        was = {entry.name: entry for entry in before.reader.tree(old)} if before and old else {}
        now = {entry.name: entry for entry in after.reader.tree(new)} if new else {}
        for name in sorted(was.keys() | now.keys()):
            a, b = was.get(name), now.get(name)
            if not _same(a, b):
                found.append(Change(at + name, a, b))
            below = _tree(a), _tree(b)
            if below != (None, None):
                stack.append((at + name + b"/", *below))
    yield from sorted(found, key=lambda change: change.path)


def _tree(entry: Entry | None) -> bytes | None:
    return entry.tree if isinstance(entry, Folder) else None


def _same(a: Entry | None, b: Entry | None) -> bool:
    if a is None or b is None or type(a) is not type(b):
        return a is b
    if isinstance(a, File) and isinstance(b, File):
        return (a.mode, a.size, a.chunks) == (b.mode, b.size, b.chunks)
    if isinstance(a, Folder) and isinstance(b, Folder):
        return a.mode == b.mode
    return isinstance(a, Link) and isinstance(b, Link) and a.target == b.target
