"""Whatever bytes come: the supervisor answers, or ends; it never hangs and never fails otherwise."""

import asyncio
import random
import struct
import zlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.protocol import MAGIC, MAX_PAYLOAD, Frame, Message, Reader
from tests.contract.supervisor.box import Listening, Sandbox, Tools, sh

TAG = 1 << 20
REQUESTS = [message for message in Message if message < Message.HELLO_OK and message != Message.SHUTDOWN]
frames = st.builds(
    Frame,
    message=st.one_of(st.sampled_from(REQUESTS), st.integers(16, 255)),
    tag=st.integers(1 << 20, (1 << 20) + 3),  # not the client's own
    exec=st.integers(0, 3),
    payload=st.binary(max_size=200),
    flags=st.integers(0, 255),
)


CONNECTING = """python3 -c "
import socket
held = []
while True:
    held = held[-5:] + [socket.create_connection(('127.0.0.1', 3128))]
    try: held[0].sendall(bytes(5000)); held[-1].recv(1)
    except OSError: pass
" 2> /dev/null"""


@pytest.fixture
async def sandbox(tools: Tools) -> AsyncIterator[Sandbox]:
    """One that has a way out."""
    made = Sandbox(tools, "--proxy", "3128")
    yield made
    await made.remove()


async def sends_and_stays(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serves a connection for a moment."""
    writer.write(bytes(300_000))
    await asyncio.sleep(0.05)
    writer.close()


def broken(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, cut or doubled."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(found))
        how = chance.randrange(4)
        if how == 0:
            found[at] = chance.randrange(256)
        elif how == 1:
            del found[at : at + chance.randint(1, 8)]
        elif how == 2:
            found[at:at] = found[at : at + chance.randint(1, 64)]
        else:
            struct.pack_into("<I", found, min(at, len(found) - 4), chance.choice((0, 1, 2**31, 2**32 - 1, 65536)))
        if len(found) < 8:
            break
    return bytes(found)


def sealed(data: bytes) -> bytes:
    """With the check sum that it should have, so that what is broken reaches the parsers behind it."""
    found = bytearray(data)
    struct.pack_into("<I", found, 12, len(found) - 20)
    struct.pack_into("<I", found, 16, zlib.crc32(found[20:], zlib.crc32(found[:16])))
    return bytes(found)


@settings(max_examples=150, deadline=None, database=None)
@given(st.lists(frames, max_size=5), st.binary(max_size=50), st.data())
def test_the_reader_gives_every_whole_frame_however_it_is_cut(
    sent: list[Frame], before: bytes, data: st.DataObject
) -> None:
    before = before.replace(bytes([MAGIC]), b"")
    stream = before + b"".join(frame.encode() for frame in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reader = Reader(synced=data.draw(st.booleans()))
    found: list[Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[start:end])
    assert found == sent


async def survives(client: Supervisor) -> None:
    async with asyncio.timeout(10):
        await client.ping()


async def test_any_bytes_on_a_connection(listening: Listening) -> None:
    """Bytes that are no frames: the connection is closed, the next one works, commands go on."""
    steady = await listening.connect()
    running = await steady.start(sh("steady", "sleep 1; echo through"))
    await steady.close()
    chance = random.Random(7)
    for n in range(150):
        _, writer = connection = await asyncio.open_unix_connection(listening.folder / "s")
        hello = Frame(Message.HELLO, 1, 0, struct.pack("<IQ", 1, 1) + bytes(16)).encode()
        junk = chance.randbytes(chance.choice((1, 20, 300, 70_000)))
        if n % 3 == 0:
            junk = bytes([MAGIC, 1, chance.randrange(256)]) + junk
        writer.write(chance.choice((hello, b"")) + junk)
        try:
            await writer.drain()
            await asyncio.wait_for(connection[0].read(1000), 0.005)
        except (TimeoutError, ConnectionError):
            pass
        writer.close()
    again = await listening.connect(2)
    await survives(again)
    assert (await again.kept(await again.attach("steady"))).stdout == b"through\n"
    assert running.started
    await again.close()


@pytest.mark.parametrize("seed", range(4))
async def test_requests_that_are_nearly_right(client: Supervisor, seed: int) -> None:
    """Over stdio nothing may end it: each broken frame is dropped or refused."""
    chance = random.Random(seed)
    whole = [
        Frame(Message.EXEC, TAG, 0, sh(f"a{seed}", "echo x; cat", stdin=b"abc", timeout_s=0.5).encode()).encode(),
        Frame(Message.ATTACH, TAG, 0, struct.pack("<H2sQQI", 2, b"a0", 0, 0, 99)).encode(),
        Frame(Message.STDIN, TAG, 1, struct.pack("<Q", 0) + b"bytes").encode(),
        Frame(Message.SIGNAL, TAG, 1, struct.pack("<IB", 15, 1)).encode(),
        Frame(Message.FILE_WRITE, TAG, 0, b"\0" + struct.pack("<H1sIIQ", 1, b"f", 1, 420, 0) + b"bytes", 1).encode(),
        Frame(Message.FILE_LIST, TAG, 0, b"\0" + struct.pack("<HQI", 0, 0, 5)).encode(),
        Frame(Message.FILE_MOVE, TAG, 0, b"\0" + struct.pack("<H1sH1s", 1, b"f", 1, b"g")).encode(),
        Frame(Message.HELLO, TAG, 0, struct.pack("<IQ", 1, 1) + bytes(16)).encode(),
    ]
    for n in range(1, 40):
        whole += [
            Frame(Message.NET_SEND, 0, n, b"bytes", n % 2).encode(),
            Frame(Message.NET_CREDIT, 0, n, struct.pack("<I", 999)).encode(),
            Frame(Message.NET_CLOSE, 0, n, b"", n % 2).encode(),
        ]
    client.net.serve(sends_and_stays)
    opening = await client.start(sh("opening", CONNECTING, window=0))
    writer = client._link._writer
    for n in range(400):
        if n % 20 == 0:
            await asyncio.sleep(0.02)
        data = broken(chance.choice(whole), chance)
        if len(data) > 20 and chance.random() < 0.8:
            data = sealed(data)
        if len(data) > 2 and data[2] == Message.SHUTDOWN:
            continue
        writer.write(data)
    writer.write(bytes(20 + MAX_PAYLOAD))  # whatever is unfinished ends here
    await writer.drain()
    await survives(client)
    entry = await (await client.start(sh(f"after{seed}", "exit 3"))).closed()
    assert entry.exit_code == 3
    assert opening.started


@pytest.mark.timeout(120)
async def test_any_sound_frame_is_answered(client: Supervisor) -> None:
    """Frames with a right check sum and any contents."""
    sent: list[Frame] = []

    @settings(
        max_examples=300, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )  # fmt: skip
    @given(frames)
    def collect(frame: Frame) -> None:
        if frame.message != Message.SHUTDOWN:
            sent.append(frame)

    collect()
    assert len(sent) > 100
    client.net.serve(sends_and_stays)
    await client.start(sh("opening", CONNECTING, window=0))
    for frame in sent:
        client._link._writer.write(frame.encode())
        await client._link._writer.drain()
    await client.greet(2**63)  # one of them may have been a HELLO with a high epoch
    await survives(client)
