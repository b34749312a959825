"""Where objects lie: a segment of the index tells it for the packs of one snapshot, in one stored file.

A pack is a row of blocks; a block is one piece of compression and holds one large object or many small ones.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from services.snapshots.faults import broken

MAGIC = b"LHX1"
_COUNTS = struct.Struct(">BIII")
_PACK = struct.Struct(">32s")
_BLOCK = struct.Struct(">IIII")
_OBJECT = struct.Struct(">32sIII")


class Block(NamedTuple):
    """Bytes `start` to `start + stored` of a pack; `length` bytes once they are unpacked (as they are where equal)."""

    pack: bytes
    start: int
    stored: int
    length: int


class Spot(NamedTuple):
    """An object's place inside an unpacked block."""

    block: Block
    at: int
    length: int


def pack_index(spots: Mapping[bytes, Spot], salt: int = 0) -> bytes:
    """The bytes of a segment, the same for the same spots (and salt, which means nothing)."""
    blocks = sorted({spot.block for spot in spots.values()})
    packs = sorted({block.pack for block in blocks})
    pack_no, block_no = {p: n for n, p in enumerate(packs)}, {b: n for n, b in enumerate(blocks)}
    return b"".join(
        [
            MAGIC,
            _COUNTS.pack(salt, len(packs), len(blocks), len(spots)),
            *packs,
            *(_BLOCK.pack(pack_no[b.pack], b.start, b.stored, b.length) for b in blocks),
            *(_OBJECT.pack(d, block_no[s.block], s.at, s.length) for d, s in sorted(spots.items())),
        ]
    )


def unpack_index(data: bytes) -> dict[bytes, Spot]:
    """The spots of a segment.

    Raises:
        LonghaulError: ``SNAPSHOT_FAILED``.
    """
    try:
        return dict(_spots(data))
    except (struct.error, IndexError, ValueError) as error:
        raise broken("its index cannot be read") from error


def unpack_digests(data: bytes) -> list[bytes]:
    """The digests of a segment, which is faster. Faults as `unpack_index`."""
    try:
        return [entry[0] for entry in _OBJECT.iter_unpack(data[_ends(data)[1] :])]
    except (struct.error, ValueError) as error:
        raise broken("its index cannot be read") from error


def _ends(data: bytes) -> tuple[int, int]:
    """Where its packs and its blocks end."""
    _, packs, blocks, objects = _COUNTS.unpack_from(data, len(MAGIC))
    after_packs = len(MAGIC) + _COUNTS.size + packs * _PACK.size
    after_blocks = after_packs + blocks * _BLOCK.size
    if data[: len(MAGIC)] != MAGIC or len(data) != after_blocks + objects * _OBJECT.size:
        raise ValueError("not a segment")
    return after_packs, after_blocks


def _spots(data: bytes) -> Iterable[tuple[bytes, Spot]]:
    after_packs, after_blocks = _ends(data)
    names = [name for (name,) in _PACK.iter_unpack(data[len(MAGIC) + _COUNTS.size : after_packs])]
    places = [Block(names[n], *rest) for n, *rest in _BLOCK.iter_unpack(data[after_packs:after_blocks])]
    return [
        (digest, Spot(places[n], start, length))
        for digest, n, start, length in _OBJECT.iter_unpack(data[after_blocks:])
    ]
