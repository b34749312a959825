"""Tree objects: one a folder, in canonical bytes, so that equal folders have equal digests.

A tree holds its entries in the order of their names (bytes): a file with its chunks, a folder with the digest of its
tree, a link with its target as text. Owners, access times and extended attributes are not kept; of a mode the lowest
nine bits are.
"""

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from blake3 import blake3

from services.snapshots.faults import broken

HOLE = bytes(32)
"""The digest of a stretch of a file that holds nothing and takes no room."""
MAGIC = b"LHT1"
MODE_BITS = 0o777
_ENTRY = struct.Struct(">cHqH")
_CHUNK = struct.Struct(">32sQ")
_COUNTS = struct.Struct(">QI")
_SHORT = struct.Struct(">H")


def digest_of(data: bytes | memoryview) -> bytes:
    """The name of an object: 32 bytes of BLAKE3."""
    return blake3(data).digest()


class Chunk(NamedTuple):
    """A piece of a file: `digest` is `HOLE` or that of its bytes."""

    digest: bytes
    length: int


class File(NamedTuple):
    """A regular file; `mtime_ns` is nanoseconds since 1970."""

    name: bytes
    mode: int
    mtime_ns: int
    size: int
    chunks: tuple[Chunk, ...]


class Folder(NamedTuple):
    """A folder; `tree` is the digest of its own tree object."""

    name: bytes
    mode: int
    mtime_ns: int
    tree: bytes


class Link(NamedTuple):
    """A symbolic link; its target is kept as it stands, and never followed."""

    name: bytes
    mtime_ns: int
    target: bytes


Entry = File | Folder | Link


def pack_tree(entries: list[Entry]) -> bytes:
    """The canonical bytes of a folder's entries, in whatever order they come."""
    parts = [MAGIC]
    for entry in sorted(entries, key=lambda e: e.name):
        parts += _packed(entry)
    return b"".join(parts)


def _packed(entry: Entry) -> list[bytes]:
    if isinstance(entry, File):
        head = _ENTRY.pack(b"f", entry.mode, entry.mtime_ns, len(entry.name))
        chunks = [_CHUNK.pack(chunk.digest, chunk.length) for chunk in entry.chunks]
        return [head, entry.name, _COUNTS.pack(entry.size, len(entry.chunks)), *chunks]
    if isinstance(entry, Folder):
        return [_ENTRY.pack(b"d", entry.mode, entry.mtime_ns, len(entry.name)), entry.name, entry.tree]
    head = _ENTRY.pack(b"l", 0, entry.mtime_ns, len(entry.name))
    return [head, entry.name, _SHORT.pack(len(entry.target)), entry.target]


def unpack_tree(data: bytes) -> list[Entry]:
    """The entries of a tree object.

    Raises:
        LonghaulError: ``SNAPSHOT_FAILED`` for anything that `pack_tree` would not have written: a name that leads
            elsewhere, an order that is not the names', a size that its chunks do not make up.
    """
    try:
        entries = list(_entries(data))
    except (struct.error, ValueError) as error:
        raise broken("a folder's entry in it cannot be read") from error
    if any(before.name >= after.name for before, after in pairwise(entries)):
        raise broken("the entries of a folder in it are out of order")
    return entries


def _entries(data: bytes) -> Iterator[Entry]:
    at = len(MAGIC)
    if data[:at] != MAGIC:
        raise ValueError("not a tree")
    while at < len(data):
        kind, mode, mtime_ns, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size + length
        name = data[at - length : at]
        if not sound_name(name) or mode & ~MODE_BITS:
            raise ValueError("not a name or a mode")
        if kind == b"f":
            size, count = _COUNTS.unpack_from(data, at)
            at += _COUNTS.size + count * _CHUNK.size
            yield _file(name, mode, mtime_ns, size, data[at - count * _CHUNK.size : at])
        elif kind == b"d":
            at += 32
            yield Folder(name, mode, mtime_ns, data[at - 32 : at])
        elif kind == b"l":
            (length,) = _SHORT.unpack_from(data, at)
            at += _SHORT.size + length
            yield _link(name, mtime_ns, data[at - length : at])
        else:
            raise ValueError("not an entry")
    if at != len(data):
        raise ValueError("cut off")


def _file(name: bytes, mode: int, mtime_ns: int, size: int, packed: bytes) -> File:
    chunks = tuple(map(Chunk._make, _CHUNK.iter_unpack(packed)))
    if sum([chunk.length for chunk in chunks]) != size or not all(chunk.length for chunk in chunks):
        raise ValueError("not the file's size")
    return File(name, mode, mtime_ns, size, chunks)


def _link(name: bytes, mtime_ns: int, target: bytes) -> Link:
    if not target or b"\0" in target:
        raise ValueError("not a target")
    return Link(name, mtime_ns, target)


def sound_name(name: bytes) -> bool:
    """Whether this can be the name of one entry of a folder, and of nothing else."""
    return bool(name) and name not in (b".", b"..") and b"/" not in name and b"\0" not in name
