"""Taking a snapshot of a folder: what changed since the last one is read and stored, the rest is only looked at."""

import os
import struct
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox.beneath import Root
from services.sandbox.remembered import CONTENT, KIND, SIZE, STATE, Memory, Row, recall, remember
from services.sandbox.scan import Piece, Scan, Slot, Wanted, join, read, scan
from services.snapshots.format import Chunk, Entry, File, Folder, Link, pack_tree
from services.snapshots.manifest import Manifest
from services.snapshots.shelf import Shelf
from services.snapshots.writing import Base, Writer, Written, find_base

_CHUNK = struct.Struct(">32sQ")


def capture(folder: Path, shelf: Shelf, notes: Path) -> Written:
    """Take a snapshot of a folder in which nothing changes meanwhile. `notes` is the file with what the last one saw.

    Raises:
        LonghaulError: ``SNAPSHOT_FAILED`` for a folder that cannot be kept; ``OBJECTS_UNAVAILABLE``.
    """
    memory = recall(notes)
    base = find_base(shelf, memory.ref) if memory.ref else None
    if base is None:  # what it would build on may be gone
        return _capture(folder, shelf, notes, Memory(), None)
    try:
        return _capture(folder, shelf, notes, memory, base)
    except LonghaulError as error:
        if error.code is not ErrorCode.SNAPSHOT_FAILED:
            raise
        return _capture(folder, shelf, notes, Memory(), None)  # the one before may be what is damaged


def _capture(folder: Path, shelf: Shelf, notes: Path, memory: Memory, base: Base | None) -> Written:
    with Root(folder) as root, Writer(shelf, base) as writer, ExitStack() as doors:
        mode = os.fstat(root.fd).st_mode & 0o777
        found = scan(root, memory, time.time_ns(), doors)
        _store(root, found.wanted, writer)
        trees = _trees(found, memory, writer)
        manifest = _manifest(found, trees[""], mode)
        done = writer.commit(manifest, lambda: needed(found, trees))
    if done.ref != memory.ref or found.wanted:
        kept = {at: (trees[at], rows) for at, rows in found.folders.items()}
        remember(notes, Memory(done.ref, kept))
    return done


def _store(root: Root, wanted: list[Wanted], writer: Writer) -> None:
    """Read and store the content of files; each row then has it."""
    waiting: deque[list[Slot]] = deque()

    def pieces() -> Iterator[list[Piece]]:
        for batch, slots in read(root, wanted):
            waiting.append(slots)
            yield batch

    for digests in writer.store(pieces()):
        for slot, digest in zip(waiting.popleft(), digests, strict=True):
            slot.digest = digest
    for file in wanted:
        file.row[CONTENT] = b"".join(_CHUNK.pack(slot.digest, slot.length) for slot in file.slots).hex()


def _trees(found: Scan, memory: Memory, writer: Writer) -> dict[str, str]:
    """The digest of each folder's tree, those below first; a folder in which all is as it was has the one it had."""
    trees: dict[str, str] = {}
    for at in reversed(found.folders):
        rows = found.folders[at]
        for name, row in rows.items():
            if row[STATE][KIND] == "d":
                row[CONTENT] = trees[join(at, name)]
        before = memory.folders.get(at)
        if before is not None and before[1] == rows:
            trees[at] = before[0]
        else:
            trees[at] = writer.add_tree(pack_tree([_entry(name, row) for name, row in rows.items()])).hex()
    return trees


def _entry(name: str, row: Row) -> Entry:
    (kind, mode, _, size, mtime_ns, _), content = row
    plain = os.fsencode(name)
    if kind == "f":
        return File(plain, mode, mtime_ns, size, tuple(chunks(row)))
    if kind == "d":
        return Folder(plain, mode, mtime_ns, bytes.fromhex(content))
    return Link(plain, mtime_ns, bytes.fromhex(content))


def chunks(row: Row) -> list[Chunk]:
    """The chunks of a file's row."""
    return [Chunk(*pair) for pair in _CHUNK.iter_unpack(bytes.fromhex(row[CONTENT]))]


def needed(found: Scan, trees: dict[str, str]) -> set[bytes]:
    """The digests of every object that the snapshot is made of."""
    digests = {bytes.fromhex(tree) for tree in trees.values()}
    for rows in found.folders.values():
        for row in rows.values():
            if row[STATE][KIND] == "f":
                digests.update(chunk.digest for chunk in chunks(row))
    return digests


def _manifest(found: Scan, root: str, mode: int) -> Manifest:
    states = [row[STATE] for rows in found.folders.values() for row in rows.values()]
    sizes = [state[SIZE] for state in states if state[KIND] == "f"]
    return Manifest(
        root=root,
        mode=mode,
        segments=(),
        files=len(sizes),
        folders=len(found.folders) - 1,
        links=sum(state[KIND] == "l" for state in states),
        bytes=sum(sizes),
    )
