"""A damaged snapshot is refused with what to do, whichever part it is and however it is damaged."""

import contextlib
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.contracts.errors import ErrorCode, LonghaulError
from services.snapshots.format import Chunk, Entry, File, Folder, Link, digest_of, pack_tree, unpack_tree
from services.snapshots.index import Block, Spot, pack_index, unpack_index
from tests.support.trees import fill
from tests.unit.snapshots.room import Room, noise

A_FILE = File(b"a", 0o644, 5, 7, (Chunk(b"1" * 32, 7),))
A_FOLDER = Folder(b"b", 0o755, -5, b"2" * 32)
A_LINK = Link(b"c", 2**60, b"/etc/passwd")
ENTRIES: list[Entry] = [A_FILE, A_FOLDER, A_LINK]


@pytest.mark.parametrize("prefix", ["packs/", "index/", "manifests/"])
@pytest.mark.parametrize("how", ["lost", "cut", "flipped", "empty"])
def test_every_part_is_checked(room: Room, prefix: str, how: str) -> None:
    fill(room.work, 7)
    room.write("large", noise(3 << 20))
    done = room.take()
    chance = random.Random(1)
    for name in sorted(room.parts(prefix)):
        path = room.top / "shelf" / name
        data = path.read_bytes()
        at = chance.randrange(5, len(data) - 5)
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        path.unlink()
        if how != "lost":
            path.write_bytes({"cut": data[: len(data) // 2], "flipped": flipped, "empty": b""}[how])
        with pytest.raises(LonghaulError) as caught:
            room.back(done.ref)
        gone = prefix == "manifests/" and how == "lost"
        assert caught.value.code is (ErrorCode.SNAPSHOT_NOT_FOUND if gone else ErrorCode.SNAPSHOT_FAILED)
        path.write_bytes(data)
    room.back(done.ref)


def test_a_tree_comes_back_and_is_the_same_in_any_order() -> None:
    data = pack_tree(ENTRIES)
    assert unpack_tree(data) == ENTRIES
    assert pack_tree(ENTRIES[::-1]) == data


@pytest.mark.parametrize("name", [b"", b".", b"..", b"../up", b"a/b", b"/etc", b"nul\0"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_name_that_leads_elsewhere_is_refused(name: bytes, entry: Entry) -> None:
    with pytest.raises(LonghaulError, match="damaged"):
        unpack_tree(pack_tree([entry._replace(name=name)]))


@pytest.mark.parametrize(
    "entry",
    [
        A_FILE._replace(mode=0o4755),
        A_FILE._replace(size=8),
        A_FILE._replace(chunks=(Chunk(b"1" * 32, 7), Chunk(b"2" * 32, 0))),
        A_LINK._replace(target=b""),
        A_LINK._replace(target=b"a\0b"),
    ],
)
def test_an_entry_that_we_never_wrote_is_refused(entry: File | Link) -> None:
    with pytest.raises(LonghaulError, match="damaged"):
        unpack_tree(pack_tree([entry]))


def test_entries_out_of_order_or_twice_are_refused() -> None:
    a, b = (pack_tree([entry])[4:] for entry in ENTRIES[:2])
    for wrong in (b + a, a + a):
        with pytest.raises(LonghaulError, match="order"):
            unpack_tree(b"LHT1" + wrong)


@given(data=st.binary(max_size=200), at=st.integers(0, 200), flip=st.integers(1, 255))
def test_no_bytes_make_the_readers_fail_otherwise(data: bytes, at: int, flip: int) -> None:
    tree = bytearray(pack_tree(ENTRIES))
    tree[at % len(tree)] ^= flip
    spots = {digest_of(b"x"): Spot(Block(b"3" * 32, 5, 6, 7), 1, 2)}
    index = bytearray(pack_index(spots))
    index[at % len(index)] ^= flip
    assert unpack_index(pack_index(spots)) == spots
    for read, wrong in ((unpack_tree, bytes(tree)), (unpack_tree, b"LHT1" + data), (unpack_index, bytes(index))):
        with contextlib.suppress(LonghaulError):
            read(wrong)


def test_a_block_that_claims_to_unpack_to_much_more_is_refused(room: Room, tmp_path: Path) -> None:
    room.write("zeros", b"z" * 500_000)
    done = room.take()
    [name] = done.manifest.segments
    spots = unpack_index((room.top / "shelf" / "index" / name).read_bytes())
    blown = {d: s._replace(block=s.block._replace(length=s.block.length - 1)) for d, s in spots.items()}
    data = pack_index(blown)
    forged = done.manifest.model_copy(update={"segments": (digest_of(data).hex(),)})
    room.shelf.put(f"index/{digest_of(data).hex()}", data)
    with pytest.raises(LonghaulError, match="damaged"):
        room.back(room.keep(forged))


def test_a_tree_of_trees_without_end_is_refused(room: Room) -> None:
    """The same folder twice in each of fifty levels would be 2**50 entries."""
    tree, objects = pack_tree([]), []
    for _ in range(50):
        objects.append(tree)
        tree = pack_tree([Folder(name, 0o755, 0, digest_of(tree)) for name in (b"a", b"b")])
    with pytest.raises(LonghaulError, match="more than its manifest says"):
        room.back(room.forge([*objects, tree]))


def test_a_counter_of_chunks_that_is_absurd_costs_nothing() -> None:
    head = struct.pack(">cHqH", b"f", 0o644, 0, 1) + b"a" + struct.pack(">QI", 1, 2**32 - 1)
    with pytest.raises(LonghaulError, match="damaged"):
        unpack_tree(b"LHT1" + head)
