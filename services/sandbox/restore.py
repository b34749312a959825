"""Writing a snapshot into an empty folder. Every byte is checked before it is written, and what fails leaves the caller
with a folder to throw away: it is made beside the real one and renamed only when it is whole."""

import os
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from agents.contracts.artifact import BlobRef
from services.sandbox.beneath import Root
from services.snapshots.faults import broken
from services.snapshots.format import HOLE, Entry, File, Folder, Link
from services.snapshots.index import Block
from services.snapshots.manifest import Manifest
from services.snapshots.reading import Bytes, Reader, cut, open_snapshot, runs
from services.snapshots.shelf import Shelf

_THREADS = 2
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Plan:
    """What there is to write: paths are relative to the top."""

    folders: list[tuple[bytes, Folder]] = field(default_factory=list)
    files: list[tuple[bytes, File]] = field(default_factory=list)
    links: list[tuple[bytes, Link]] = field(default_factory=list)

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many of each, as above."""
        return len(self.folders), len(self.files), len(self.links)

    def add(self, at: bytes, entries: list[Entry]) -> list[tuple[bytes, bytes]]:
        """Take a folder's entries in; the beginnings of the paths in the folders among them, and their trees."""
        below = []
        for entry in entries:
            path = at + entry.name
            if isinstance(entry, Folder):
                self.folders.append((path, entry))
                below.append((path + b"/", entry.tree))
            elif isinstance(entry, File):
                self.files.append((path, entry))
            else:
                self.links.append((path, entry))
        return below


def restore(shelf: Shelf, ref: BlobRef, target: Path, uid: int | None) -> Manifest:
    """Fill the empty folder `target`, in which nobody else writes. As root everything then belongs to `uid`.

    Raises:
        LonghaulError: ``SNAPSHOT_NOT_FOUND``; ``SNAPSHOT_FAILED`` for one that is damaged; ``OBJECTS_UNAVAILABLE``.
        OSError: the folder cannot be written.
    """
    manifest, reader = open_snapshot(shelf, ref)
    planned = plan(reader, manifest)
    with Root(target) as root:
        writing = _Writing(root.fd, uid)
        for path, _ in planned.folders:
            os.mkdir(path, 0o700, dir_fd=root.fd)
        writing.contents(reader, planned.files)
        for path, link in planned.links:  # after all files: nothing was ever written through one
            writing.link(path, link)
        for path, folder in reversed(planned.folders):  # what is inside changes a folder's time
            writing.finish(path, folder, os.O_DIRECTORY)
        os.fchmod(root.fd, manifest.mode)
    return manifest


def plan(reader: Reader, manifest: Manifest) -> Plan:
    """Every entry of the snapshot, a folder before what is in it.

    Raises:
        LonghaulError: ``SNAPSHOT_FAILED``, also where there is more than the manifest says.
    """
    found, level = Plan(), [(b"", bytes.fromhex(manifest.root))]
    most = (manifest.folders, manifest.files, manifest.links)
    while level:
        below: list[tuple[bytes, bytes]] = []
        for (at, _), entries in zip(level, reader.trees([tree for _, tree in level]), strict=True):
            below += found.add(at, entries)
            if any(count > limit for count, limit in zip(found.counts, most, strict=True)):
                raise broken("it holds more than its manifest says")
        level = below
    if found.counts != most:
        raise broken("it holds less than its manifest says")
    return found


Place = tuple[bytes, File, int]
"""A file's path, the file, and where in it a chunk goes; -1 for a file that is one chunk."""


class _Writing:
    """Files, links and folders below a held folder that is still ours alone."""

    def __init__(self, root: int, uid: int | None) -> None:
        self._root = root
        self._uid = uid
        self._making = Lock()  # threads that make files in one folder wait for each other in the kernel, busily

    def contents(self, reader: Reader, files: Iterable[tuple[bytes, File]]) -> None:
        """Write all files, each block being fetched once."""
        wanted: defaultdict[Block, dict[bytes, list[Place]]] = defaultdict(dict)
        large: list[tuple[bytes, File]] = []
        for path, file in files:
            one = len(file.chunks) == 1 and file.chunks[0].digest != HOLE
            if not one:
                self._make_large(path, file)
                large.append((path, file))
            at = -1 if one else 0
            for chunk in file.chunks:
                if chunk.digest != HOLE:
                    spot = reader.spot(chunk.digest)
                    if spot.length != chunk.length:
                        raise broken("a file in it is not as long as it says")
                    wanted[spot.block].setdefault(chunk.digest, []).append((path, file, at))
                at += chunk.length
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="restore") as pool:
            for _ in pool.map(lambda run: self._run(reader, run, wanted), runs(wanted)):
                pass
        for path, file in large:
            self.finish(path, file)

    def _run(self, reader: Reader, run: list[Block], wanted: dict[Block, dict[bytes, list[Place]]]) -> None:
        for block, data in reader.fetch(run):
            for digest, places in wanted[block].items():
                piece = cut(data, reader.spot(digest), digest)
                for path, file, at in places:
                    if at < 0:
                        self._whole(path, file, piece)
                    else:
                        self._part(path, at, piece)

    def _whole(self, path: bytes, file: File, data: Bytes) -> None:
        with self._making:
            fd = os.open(path, _WRITE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._root)
            try:
                _write(fd, data, 0)
                self._dress(fd, file)
            finally:
                os.close(fd)

    def _part(self, path: bytes, at: int, data: Bytes) -> None:
        fd = os.open(path, _WRITE, dir_fd=self._root)
        try:
            _write(fd, data, at)
        finally:
            os.close(fd)

    def _make_large(self, path: bytes, file: File) -> None:
        fd = os.open(path, _WRITE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._root)
        try:
            os.ftruncate(fd, file.size)
        finally:
            os.close(fd)

    def finish(self, path: bytes, entry: File | Folder, flags: int = 0) -> None:
        """Give it its owner, its mode and its time."""
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=self._root)
        try:
            self._dress(fd, entry)
        finally:
            os.close(fd)

    def _dress(self, fd: int, entry: File | Folder) -> None:
        if self._uid is not None:
            os.fchown(fd, self._uid, self._uid)
        os.fchmod(fd, entry.mode)
        os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))

    def link(self, path: bytes, link: Link) -> None:
        """Make a link as it was, wherever it leads."""
        os.symlink(link.target, path, dir_fd=self._root)
        os.utime(path, ns=(link.mtime_ns, link.mtime_ns), dir_fd=self._root, follow_symlinks=False)
        if self._uid is not None:
            os.chown(path, self._uid, self._uid, dir_fd=self._root, follow_symlinks=False)


def _write(fd: int, data: Bytes, at: int) -> None:
    left = memoryview(data)
    while left:
        done = os.pwrite(fd, left, at)
        left, at = left[done:], at + done
