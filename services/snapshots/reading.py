"""Reading a snapshot: objects by their digests, every one of them checked."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from agents.contracts.artifact import BlobRef
from agents.contracts.errors import ErrorCode, LonghaulError
from services.snapshots.faults import broken, no_snapshot
from services.snapshots.format import Entry, digest_of, unpack_tree
from services.snapshots.index import Block, Spot, unpack_digests, unpack_index
from services.snapshots.manifest import Manifest, unpack_manifest
from services.snapshots.packs import MAX_OBJECT_BYTES, unsqueeze
from services.snapshots.shelf import INDEX, MANIFESTS, PACKS, Shelf

_GAP_BYTES = 128 << 10
"""Blocks that lie no further apart are fetched at once."""
_RUN_BYTES = 8 << 20
_KEPT_BYTES = 16 << 20

Bytes = bytes | memoryview


def read_manifest(shelf: Shelf, ref: BlobRef) -> Manifest:
    """A snapshot's manifest.

    Raises:
        LonghaulError: ``SNAPSHOT_NOT_FOUND``; ``SNAPSHOT_FAILED`` where it is damaged; ``OBJECTS_UNAVAILABLE``.
    """
    try:
        data = shelf.get(MANIFESTS + ref.sha256)
    except LonghaulError as error:
        if error.code is ErrorCode.NOT_FOUND:
            raise no_snapshot(ref.sha256) from error
        raise
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise broken("its manifest holds other bytes than were kept")
    return unpack_manifest(data)


def read_index(shelf: Shelf, segments: Sequence[str]) -> dict[bytes, Spot]:
    """Where every object of some segments lies. ``SNAPSHOT_FAILED``, ``OBJECTS_UNAVAILABLE``."""
    spots: dict[bytes, Spot] = {}
    for name in segments:
        spots |= unpack_index(_segment(shelf, name))
    return spots


def read_digests(shelf: Shelf, segments: Sequence[str]) -> set[bytes]:
    """The digests of every object of some segments. Faults as `read_index`."""
    return {digest for name in segments for digest in unpack_digests(_segment(shelf, name))}


def _segment(shelf: Shelf, name: str) -> bytes:
    data = _part(shelf, INDEX + name)
    if digest_of(data).hex() != name:
        raise broken(f"index {name} holds other bytes than were kept")
    return data


def _part(shelf: Shelf, name: str, start: int = 0, length: int | None = None) -> bytes:
    try:
        return shelf.get(name, start, length)
    except LonghaulError as error:
        if error.code in (ErrorCode.NOT_FOUND, ErrorCode.RANGE_NOT_SATISFIABLE):
            raise broken(f"{name} is missing") from error
        raise


class Reader:
    """The objects of a snapshot. Safe to use from many threads, but for `get` and `tree`."""

    def __init__(self, shelf: Shelf, spots: dict[bytes, Spot]) -> None:
        self._shelf = shelf
        self._spots = spots
        self._blocks: OrderedDict[Block, Bytes] = OrderedDict()
        self._kept_bytes = 0

    def spot(self, digest: bytes) -> Spot:
        """Where an object lies. ``SNAPSHOT_FAILED`` where the index does not say."""
        found = self._spots.get(digest)
        if found is None:
            raise broken(f"object {digest.hex()} is missing")
        return found

    def get(self, digest: bytes) -> Bytes:
        """An object."""
        spot = self.spot(digest)
        block = self._blocks.get(spot.block)
        if block is None:
            [(_, block)] = self.fetch([spot.block])
            self._remember(spot.block, block)
        return cut(block, spot, digest)

    def tree(self, digest: bytes) -> list[Entry]:
        """The entries of a folder."""
        return unpack_tree(bytes(self.get(digest)))

    def trees(self, digests: Sequence[bytes]) -> list[list[Entry]]:
        """The entries of several folders; what they lie in is fetched together."""
        missing = {spot.block for digest in digests if (spot := self.spot(digest)).block not in self._blocks}
        for block, data in self.fetch(missing):
            self._remember(block, data)
        return [self.tree(digest) for digest in digests]

    def fetch(self, blocks: Iterable[Block]) -> Iterator[tuple[Block, Bytes]]:
        """Blocks, unpacked, in the order in which they lie."""
        for run in runs(blocks):
            first, last = run[0], run[-1]
            data = _part(self._shelf, PACKS + first.pack.hex(), first.start, last.start + last.stored - first.start)
            view = memoryview(data)
            for block in run:
                at = block.start - first.start
                yield block, unsqueeze(block, view[at : at + block.stored])

    def _remember(self, block: Block, data: Bytes) -> None:
        self._blocks[block] = data
        self._kept_bytes += len(data)
        while self._kept_bytes > _KEPT_BYTES and len(self._blocks) > 1:
            _, dropped = self._blocks.popitem(last=False)
            self._kept_bytes -= len(dropped)


def cut(block: Bytes, spot: Spot, digest: bytes) -> Bytes:
    """An object out of its unpacked block.

    Raises:
        LonghaulError: ``SNAPSHOT_FAILED`` where its bytes are not those that were kept.
    """
    data = memoryview(block)[spot.at : spot.at + spot.length]
    if len(data) != spot.length or digest_of(data) != digest:
        raise broken(f"pack {spot.block.pack.hex()} holds other bytes than were kept")
    return data


def runs(blocks: Iterable[Block]) -> list[list[Block]]:
    """Blocks that are fetched by one request each: neighbours in one pack."""
    found: list[list[Block]] = []
    for block in sorted(blocks):
        if block.stored > MAX_OBJECT_BYTES:
            raise broken("its index names a block of absurd size")
        if found and _together(found[-1], block):
            found[-1].append(block)
        else:
            found.append([block])
    return found


def _together(run: list[Block], block: Block) -> bool:
    first, last = run[0], run[-1]
    end = last.start + last.stored
    return first.pack == block.pack and block.start - end <= _GAP_BYTES and block.start - first.start < _RUN_BYTES


def open_snapshot(shelf: Shelf, ref: BlobRef) -> tuple[Manifest, Reader]:
    """A snapshot to read from. Faults as `read_manifest`."""
    manifest = read_manifest(shelf, ref)
    return manifest, Reader(shelf, read_index(shelf, manifest.segments))
