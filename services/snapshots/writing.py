"""Writing a snapshot: objects into packs, then the index, then the manifest. Nothing counts before the manifest."""

import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from agents.contracts.artifact import BlobRef
from agents.contracts.errors import ErrorCode, LonghaulError
from services.snapshots.faults import cannot_be_kept
from services.snapshots.format import HOLE, digest_of
from services.snapshots.index import Spot, pack_index
from services.snapshots.manifest import Manifest, pack_manifest
from services.snapshots.packs import MAX_OBJECT_BYTES, Packer, Squeezed, squeeze
from services.snapshots.reading import read_digests, read_index, read_manifest
from services.snapshots.shelf import CONDEMNED, INDEX, MANIFESTS, Shelf, keep

MAX_SEGMENTS = 16
"""A snapshot whose index has more segments than this gets one of its own, of what it needs and nothing else."""
LONGEST_S = 6 * 3_600.0
"""A snapshot that takes longer is given up: a collection might have taken away what it builds on."""
_AHEAD = 6
_UPLOADS = 4

Piece = bytes | memoryview


@dataclass(frozen=True)
class Base:
    """An earlier snapshot of the same tenant, on which the new one builds."""

    ref: BlobRef
    manifest: Manifest


def find_base(shelf: Shelf, ref: BlobRef) -> Base | None:
    """The snapshot to build on; None where it is gone, damaged, or marked to go."""
    if shelf.has(f"{CONDEMNED}{MANIFESTS}{ref.sha256}"):
        return None
    try:
        return Base(ref, read_manifest(shelf, ref))
    except LonghaulError as error:
        if error.code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.SNAPSHOT_FAILED):
            return None
        raise


@dataclass(frozen=True)
class Written:
    """A snapshot that was kept: `added_bytes` is what had to be stored for it."""

    ref: BlobRef
    manifest: Manifest
    added_bytes: int


class Seen:
    """Objects that need not be stored: those of the base, whose index is read when the first is asked for, and those
    that this snapshot has claimed."""

    def __init__(self, shelf: Shelf, base: Base | None) -> None:
        self._shelf = shelf
        self._segments = base.manifest.segments if base else ()
        self._known: set[bytes] | None = None
        self._claimed: set[bytes] = set()
        self._lock = threading.Lock()

    def claim(self, digest: bytes) -> bool:
        """Whether the caller has to store it."""
        with self._lock:
            if digest in self._claimed or digest in self.known:
                return False
            self._claimed.add(digest)
            return True

    @property
    def known(self) -> set[bytes]:
        """The base's."""
        if self._known is None:
            self._known = read_digests(self._shelf, self._segments)
        return self._known


class Writer:
    """One snapshot being written. Use it as a context manager: its threads end with the block."""

    def __init__(self, shelf: Shelf, base: Base | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` counts seconds."""
        self._shelf = shelf
        self._base = base
        self._clock = clock
        self._until = clock() + LONGEST_S
        self._workers = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="snapshot")
        self._uploads = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="snapshot-put")
        self._seen = Seen(shelf, base)
        self._contents, self._trees = Packer(shelf, self._uploads), Packer(shelf, self._uploads)
        self._tree_objects: list[tuple[bytes, bytes]] = []

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.shutdown(wait=True, cancel_futures=True)
        self._uploads.shutdown(wait=True, cancel_futures=True)

    def store(self, batches: Iterable[Sequence[Piece]]) -> Iterable[list[bytes]]:
        """Store pieces of files, a batch at a time, and give the digests of each batch in the order they came. Reading
        goes on while earlier batches are hashed and compressed elsewhere."""
        waiting: deque[Future[tuple[list[bytes], list[Squeezed]]]] = deque()
        for batch in batches:
            waiting.append(self._workers.submit(_prepared, batch, self._seen))
            if len(waiting) > _AHEAD:
                yield self._packed(waiting.popleft())
        while waiting:
            yield self._packed(waiting.popleft())

    def _packed(self, prepared: "Future[tuple[list[bytes], list[Squeezed]]]") -> list[bytes]:
        digests, blocks = prepared.result()
        for block in blocks:
            self._contents.add(block)
        return digests

    def add_tree(self, data: bytes) -> bytes:
        """Store a folder's tree; its digest. ``SNAPSHOT_FAILED`` for one that is too large."""
        if len(data) > MAX_OBJECT_BYTES:
            raise cannot_be_kept("a folder in it has too many entries")
        digest = digest_of(data)
        if self._seen.claim(digest):
            self._tree_objects.append((digest, data))
        return digest

    def commit(self, manifest: Manifest, needed: Callable[[], Iterable[bytes]]) -> "Written":
        """Store what is left, then the index, then the manifest (its `segments` are filled in here). `needed` gives the
        digests of all its objects; it is asked only where the index is written anew.

        Raises:
            LonghaulError: ``OBJECTS_UNAVAILABLE``; ``SNAPSHOT_FAILED`` where it took too long.
        """
        for block in squeeze(self._tree_objects):
            self._trees.add(block)
        new = self._contents.finish() | self._trees.finish()
        segments = self._segments(new, needed)
        if self._clock() > self._until:
            raise cannot_be_kept(f"it took longer than {LONGEST_S / 3600:.0f} hours; try again")
        whole = manifest.model_copy(update={"segments": segments})
        added = sum(block.stored for block in {spot.block for spot in new.values()})
        return Written(self._put_manifest(whole), whole, added)

    def _put_manifest(self, manifest: Manifest) -> BlobRef:
        def made(salt: int) -> tuple[str, bytes]:
            data = pack_manifest(manifest.model_copy(update={"salt": salt}))
            return hashlib.sha256(data).hexdigest(), data

        name = keep(self._shelf, MANIFESTS, made)
        return BlobRef(sha256=name, bytes=len(pack_manifest(manifest)))

    def _segments(self, new: dict[bytes, Spot], needed: Callable[[], Iterable[bytes]]) -> tuple[str, ...]:
        before = self._base.manifest.segments if self._base else ()
        if not new:
            return before
        if len(before) < MAX_SEGMENTS:
            return (*before, self._put_index(new))
        everything = read_index(self._shelf, before) | new
        return (self._put_index({digest: everything[digest] for digest in needed() if digest != HOLE}),)

    def _put_index(self, spots: dict[bytes, Spot]) -> str:
        def made(salt: int) -> tuple[str, bytes]:
            data = pack_index(spots, salt)
            return digest_of(data).hex(), data

        return keep(self._shelf, INDEX, made)


def _prepared(batch: Sequence[Piece], seen: Seen) -> tuple[list[bytes], list[Squeezed]]:
    """The digests of pieces, and the new ones among them as blocks."""
    digests = [digest_of(piece) for piece in batch]
    new = [(digest, piece) for digest, piece in zip(digests, batch, strict=True) if seen.claim(digest)]
    return digests, squeeze(new)
