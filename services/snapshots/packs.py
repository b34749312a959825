"""Packs: rows of blocks of about 4 MiB, named by the digest of their bytes."""

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from services.snapshots.faults import broken
from services.snapshots.format import digest_of
from services.snapshots.index import Block, Spot
from services.snapshots.shelf import PACKS, Shelf, keep

PACK_BYTES = 4 << 20
BLOCK_BYTES = 256 << 10
"""Small objects are gathered into blocks of this size; one that is larger has a block of its own."""
MAX_OBJECT_BYTES = 64 << 20
LEVEL = 1
MAGIC = b"LHP1"
_TRIAL_BYTES = 32 << 10
_WORTH = 0.96
_UNDER_WAY = 6


@dataclass(frozen=True, slots=True)
class Squeezed:
    """One block, ready to be put into a pack; `objects` are (digest, place in the unpacked block, length)."""

    data: bytes | memoryview
    length: int
    objects: tuple[tuple[bytes, int, int], ...]


def squeeze(objects: Sequence[tuple[bytes, bytes | memoryview]]) -> list[Squeezed]:
    """Objects (digest and bytes) as blocks, in their order."""
    made: list[Squeezed] = []
    gathered: list[tuple[bytes, bytes | memoryview]] = []
    size = 0
    for digest, data in objects:
        if gathered and size + len(data) > BLOCK_BYTES:
            made.append(_block(gathered))
            gathered, size = [], 0
        gathered.append((digest, data))
        size += len(data)
    return [*made, _block(gathered)] if gathered else made


def _block(objects: Sequence[tuple[bytes, bytes | memoryview]]) -> Squeezed:
    data = objects[0][1] if len(objects) == 1 else b"".join(piece for _, piece in objects)
    places, at = [], 0
    for digest, piece in objects:
        places.append((digest, at, len(piece)))
        at += len(piece)
    return Squeezed(_compressed(data), at, tuple(places))


def _compressed(data: bytes | memoryview) -> bytes | memoryview:
    """The shorter of the two: what does not compress is kept as it is, found out on a piece from its middle."""
    zstd = ZstdCompressor(level=LEVEL)
    if len(data) > 4 * _TRIAL_BYTES:
        middle = data[len(data) // 2 : len(data) // 2 + _TRIAL_BYTES]
        if len(zstd.compress(middle)) > len(middle) * _WORTH:
            return data
    small = zstd.compress(data)
    return small if len(small) < len(data) else data


def unsqueeze(block: Block, stored: bytes | memoryview) -> bytes | memoryview:
    """A block's bytes as they were.

    Raises:
        LonghaulError: ``SNAPSHOT_FAILED``.
    """
    if len(stored) != block.stored or block.length > MAX_OBJECT_BYTES:
        raise broken(f"pack {block.pack.hex()} is cut off")
    if block.stored == block.length:
        return stored
    try:
        data = ZstdDecompressor().decompress(stored, max_output_size=block.length)
    except ZstdError as error:
        raise broken(f"pack {block.pack.hex()} holds other bytes than were kept") from error
    if len(data) != block.length:
        raise broken(f"pack {block.pack.hex()} holds other bytes than were kept")
    return data


class Packer:
    """Gathers blocks into packs and stores each as soon as it is full. `finish` tells where everything lies."""

    def __init__(self, shelf: Shelf, uploads: Executor) -> None:
        self._shelf = shelf
        self._uploads = uploads
        self._blocks: list[Squeezed] = []
        self._size = 0
        self._sent: list[Future[dict[bytes, Spot]]] = []
        self._waited = 0

    def add(self, block: Squeezed) -> None:
        """Put a block into the pack that is being filled. Waits where too many packs are on their way.

        Raises:
            LonghaulError: ``OBJECTS_UNAVAILABLE``, of an earlier pack.
        """
        if self._size and self._size + len(block.data) > PACK_BYTES:
            self._send()
        self._blocks.append(block)
        self._size += len(block.data)

    def finish(self) -> dict[bytes, Spot]:
        """Store what is left; the place of every object that was added."""
        if self._blocks:
            self._send()
        spots: dict[bytes, Spot] = {}
        for sent in self._sent:
            spots |= sent.result()
        return spots

    def _send(self) -> None:
        blocks, self._blocks, self._size = self._blocks, [], 0
        if len(self._sent) - self._waited >= _UNDER_WAY:
            self._sent[self._waited].result()
            self._waited += 1
        self._sent.append(self._uploads.submit(_store, self._shelf, blocks))


def _store(shelf: Shelf, blocks: Sequence[Squeezed]) -> dict[bytes, Spot]:
    def made(salt: int) -> tuple[str, bytes]:
        data = b"".join([MAGIC, bytes([salt]), *(block.data for block in blocks)])
        return digest_of(data).hex(), data

    pack = bytes.fromhex(keep(shelf, PACKS, made))
    spots, start = {}, len(MAGIC) + 1
    for block in blocks:
        place = Block(pack, start, len(block.data), block.length)
        start += len(block.data)
        for digest, at, length in block.objects:
            spots[digest] = Spot(place, at, length)
    return spots
