"""Output: counted, kept, streamed, waited with."""

import asyncio
import re
from pathlib import Path

from services.sandbox.supervised.client import Supervisor, spill
from services.sandbox.supervised.protocol import EntryBit, Stream
from tests.contract.supervisor.box import Sandbox, finish, sh

GIGABYTE, SOME = 1_000_000_000, 100_000_000


def resident_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


async def test_head_and_tail_are_kept_and_all_is_counted(client: Supervisor) -> None:
    command = await client.start(
        sh(
            "a",
            "echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last",
            head=1000,
            tail=100_000,
            window=0,
        )
    )
    kept = await client.kept(command)
    assert kept.entry.stdout_bytes == 5_000_012
    assert kept.stdout.startswith(b"first\nxxx")
    assert kept.stdout.endswith(b"xxx\nlast\n")
    assert len(kept.stdout) == 101_000
    assert kept.gap == 5_000_012 - 101_000


async def test_at_the_edge_of_what_is_kept(client: Supervisor) -> None:
    for size in (165_535, 165_536, 165_537):
        command = await client.start(
            sh(f"a{size}", f"head -c {size} /dev/zero | tr '\\0' x", head=100_000, tail=65_536, window=0)
        )
        kept = await client.kept(command)
        assert len(kept.stdout) == min(size, 165_536)
        assert kept.gap == max(0, size - 165_536)


async def test_a_gigabyte_in_bounded_memory(client: Supervisor, sandbox: Sandbox) -> None:
    before = resident_mb(sandbox.pid)
    unread = await client.start(sh("unread", f"head -c {GIGABYTE} /dev/zero", window=0))
    streamed = await client.start(sh("streamed", f"head -c {GIGABYTE} /dev/zero"))
    total, peak = 0, 0.0
    async for piece in streamed.pieces():
        assert piece.offset == total
        total += len(piece.data)
        if total % (1 << 24) < len(piece.data):
            peak = max(peak, resident_mb(sandbox.pid))
    assert total == GIGABYTE
    assert (await unread.closed()).stdout_bytes == GIGABYTE
    assert peak - before < 16, f"grew by {peak - before:.1f} MB"


async def test_a_command_waits_for_a_controller_that_does_not_take(client: Supervisor, sandbox: Sandbox) -> None:
    command = await client.start(sh("a", f"head -c {SOME} /dev/zero; echo through >&2", window=1 << 20))
    other = await asyncio.wait_for(finish(client, sh("b", "echo not held up")), 10)
    assert other[1] == b"not held up\n"
    await asyncio.sleep(0.5)
    [entry] = [one for one in await client.list() if one.id == "a"]
    assert entry.stdout_bytes < 4 << 20
    total = 0
    async for piece in command.pieces():
        total += len(piece.data) if piece.stream == Stream.STDOUT else 0
    assert total == SOME, "nothing was lost"


async def test_from_any_offset_again(client: Supervisor) -> None:
    command = await client.start(sh("a", "printf 0123456789; printf abc >&2"))
    await command.closed()
    again = await client.attach("a", stdout=7, stderr=3)
    assert [(piece.offset, piece.data) async for piece in again.pieces()] == [(7, b"789")]
    beyond = await client.attach("a", stdout=99, stderr=2)
    assert [(piece.stream, piece.data) async for piece in beyond.pieces()] == [(Stream.STDERR, b"c")]


async def test_output_of_old_commands_gives_way_and_their_entries_stay(client: Supervisor) -> None:
    for n in range(12):
        await finish(client, sh(f"e{n}", "head -c 8000000 /dev/zero", head=8 << 20, tail=0, window=0))
    entries = {entry.id: entry for entry in await client.list()}
    assert len(entries) == 12
    assert EntryBit.OUTPUT_DROPPED in entries["e0"].bits
    assert EntryBit.OUTPUT_DROPPED not in entries["e11"].bits
    first = await (await client.attach("e0")).closed()
    assert (first.stdout_bytes, first.exit_code) == (8_000_000, 0)
    kept = await client.kept(await client.attach("e0", window=0))
    assert (kept.stdout, kept.gap) == (b"", 0)


def own_kb(pid: int) -> int:
    """Memory beside the program file."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(found) for found in re.findall(r"Anonymous:\s+(\d+)", rollup))


async def test_memory_of_an_idle_supervisor(client: Supervisor, sandbox: Sandbox) -> None:
    await finish(client, sh("a", "true"))
    idle = own_kb(sandbox.pid)
    assert idle < 512
    command = await client.start(sh("b", "head -c 3000000 /dev/zero", window=0))
    await command.closed()
    assert 1024 <= own_kb(sandbox.pid) - idle < 1300, "what is kept of its output"
    await client.forget(command)
    await client.ping()
    assert own_kb(sandbox.pid) - idle < 300


async def test_many_floods_at_once_all_arrive(client: Supervisor) -> None:
    """More than the channel takes at a time: each waits for its turn, and none for ever."""
    size = 4_000_000
    commands = [await client.start(sh(f"f{n}", f"head -c {size} /dev/zero", window=1 << 23)) for n in range(8)]
    await asyncio.sleep(0.5)
    async with asyncio.timeout(30):
        for command in reversed(commands):
            assert sum([len(piece.data) async for piece in command.pieces()]) == size


async def test_all_of_it_in_a_file_of_the_controller(client: Supervisor, tmp_path: Path) -> None:
    with (tmp_path / "spilled").open("wb") as file:
        entry = await spill(await client.start(sh("a", "seq 1 300000; echo end >&2", merge=True)), file)
    expected = "".join(f"{n}\n" for n in range(1, 300_001)) + "end\n"
    assert (tmp_path / "spilled").read_text() == expected
    assert entry.stdout_bytes == len(expected)
