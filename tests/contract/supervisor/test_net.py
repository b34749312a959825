"""The way out: connections inside become streams outside, bounded in every direction, gone with their controller."""

import asyncio
import os
import signal
import struct
from collections.abc import AsyncIterator

import pytest

from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.protocol import NET_WINDOW, Message
from tests.contract.supervisor.box import Listening, Sandbox, Tools, finish, sh
from tests.contract.supervisor.test_output import resident_mb
from tests.contract.supervisor.watch import eventually

PORT = 3128
MANY = 128
MB = 1_000_000
GROWTH_MB = 24
HEAD = "import socket, sys, threading, time\ndef open_one(): return socket.create_connection(('127.0.0.1', 3128), 20)\n"
PATTERN = bytes(range(256)) * 4096


def py(source: str) -> str:
    """A command that runs this; `open_one()` connects to the port."""
    return f"python3 - <<'PYTHON'\n{HEAD}{source}\nPYTHON"


@pytest.fixture
async def box(tools: Tools) -> AsyncIterator[Sandbox]:
    made = Sandbox(tools, "--proxy", str(PORT))
    yield made
    await made.remove()


@pytest.fixture
async def out(box: Sandbox) -> AsyncIterator[Supervisor]:
    made = await box.start()
    yield made
    await made.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All back, then the end."""
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_bytes_both_ways_and_the_end_in_each_direction(out: Supervisor) -> None:
    assert out.greeting is not None
    assert out.greeting.listens
    out.net.serve(echo)
    script = py("""s = open_one()
def send():
    s.sendall(b'x' * 3000000 + b'end')
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
got = b''.join(iter(lambda: s.recv(65536), b''))
print(len(got), got[-3:].decode(), got.count(b'x'))""")
    _, said, errors = await finish(out, sh("a", script))
    assert (said, errors) == (b"3000003 end 3000000\n", b"")
    assert len(out.net) == 0


async def test_an_answer_comes_after_the_sandbox_has_said_all_and_before_it_has(out: Supervisor) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"first")
        writer.write_eof()
        assert await reader.read() == b"last"
        writer.close()

    out.net.serve(answer)
    script = py("s = open_one(); got = s.recv(9) + s.recv(9); s.sendall(b'last'); s.close(); print(got)")
    _, said, _ = await finish(out, sh("a", script))
    assert said == b"b'first'\n"


@pytest.mark.parametrize("reads", ["slowly", "fast"])
async def test_fifty_megabytes_in(out: Supervisor, reads: str) -> None:
    size = 50 * len(PATTERN) // 1

    async def give(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(50):
            writer.write(PATTERN)
            await writer.drain()
            assert writer.transport.get_write_buffer_size() <= NET_WINDOW
        writer.close()
        await writer.wait_closed()

    out.net.serve(give)
    script = py(f"""import hashlib
s = open_one(); total = 0; digest = hashlib.sha256()
if {reads == "slowly"}: time.sleep(1)
while data := s.recv(1 << 20):
    total += len(data); digest.update(data)
print(total, digest.hexdigest())
print(hashlib.sha256((bytes(range(256)) * 4096) * 50).hexdigest())""")
    _, said, _ = await finish(out, sh("a", script), 60)
    total, found, expected = said.decode().split()
    assert (int(total), found) == (size, expected)


async def test_a_reader_inside_that_stops_holds_up_nobody_else(out: Supervisor, box: Sandbox) -> None:
    before = resident_mb(box.pid)
    written = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        while True:
            writer.write(bytes(65_536))
            await writer.drain()
            written += 65_536

    out.net.serve(flood)
    held = await out.start(
        sh("held", py("held = [open_one() for _ in range(60)]; print('open', flush=True); time.sleep(60)"))
    )
    async for piece in held.pieces():
        assert piece.data == b"open\n"
        break
    await asyncio.sleep(1)
    stuck = written
    _, said, _ = await finish(out, sh("other", "head -c 20000000 /dev/zero | wc -c"), 20)
    assert said == b"20000000\n"
    assert written == stuck, "what nobody reads is not sent"
    assert stuck < 60 * MB, "60 connections hold a megabyte each at most, the kernel's buffers too"
    assert resident_mb(box.pid) - before < GROWTH_MB
    await held.kill()
    for _ in range(100):
        if not len(out.net):
            break
        await asyncio.sleep(0.05)
    assert len(out.net) == 0


async def test_a_reader_outside_that_stops_holds_up_nobody_else(out: Supervisor, box: Sandbox) -> None:
    before = resident_mb(box.pid)
    opened = 0

    async def sit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await asyncio.sleep(60)

    out.net.serve(sit)
    script = """def send(s):
    try:
        while True: s.sendall(bytes(65536))
    except OSError: pass
for _ in range(60): threading.Thread(target=send, args=(open_one(),), daemon=True).start()
time.sleep(60)"""
    held = await out.start(sh("held", py(script)))
    for _ in range(200):
        if opened == 60:
            break
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    assert opened == 60
    _, said, _ = await finish(out, sh("other", "head -c 20000000 /dev/zero"), 20)
    assert len(said) == 20_000_000
    assert resident_mb(box.pid) - before < GROWTH_MB
    await held.kill()


async def test_output_and_network_both_go_on_under_a_flood_of_both(out: Supervisor) -> None:
    taken = 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        while data := await reader.read(65_536):
            taken += len(data)
        writer.close()

    out.net.serve(swallow)
    flood = await out.start(sh("flood", "cat /dev/zero"))
    sending = asyncio.ensure_future(
        finish(
            out,
            sh("net", py("s = open_one()\nfor _ in range(400): s.sendall(bytes(65536))\ns.close(); print('sent')")),
            60,
        )
    )
    said = 0
    async for piece in flood.pieces():
        said += len(piece.data)
        if said > 20 * MB and sending.done():
            break
    assert sending.result()[1] == b"sent\n"
    assert said > 20 * MB
    await flood.kill()
    async for _ in flood.pieces():  # asyncio waits for the end of a pipe that nobody reads
        pass


@pytest.mark.parametrize("count", [100, MANY + 30])
async def test_many_at_once(out: Supervisor, count: int) -> None:
    """More than there is room for wait for their turn."""
    most = 0

    async def counted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        most = max(most, len(out.net))
        writer.write(b"!")
        await echo(reader, writer)

    out.net.serve(counted)
    script = f"""done, go = [], threading.Barrier({min(count, MANY)})
def one(n):
    s = open_one(); sent = bytes([n % 251]) * 100000; s.recv(1)
    if n < {min(count, MANY)}: go.wait()
    threading.Thread(target=lambda: (s.sendall(sent), s.shutdown(1))).start()
    done.append(b''.join(iter(lambda: s.recv(65536), b'')) == sent)
threads = [threading.Thread(target=one, args=(n,)) for n in range({count})]
for t in threads: t.start()
for t in threads: t.join()
print(sum(done))"""
    _, said, errors = await finish(out, sh("a", py(script)), 60)
    assert (said, errors) == (b"%d\n" % count, b"")
    assert most == min(count, MANY)


async def test_nobody_who_serves(out: Supervisor) -> None:
    _, said, _ = await finish(out, sh("a", py("try: print(open_one().recv(9))\nexcept OSError as e: print(e.errno)")))
    assert said == b"104\n"


async def test_without_the_argument_nothing_listens(client: Supervisor) -> None:
    assert client.greeting is not None
    assert not client.greeting.listens
    client.net.serve(echo)
    _, said, _ = await finish(client, sh("a", py("try: open_one()\nexcept OSError as e: print(e.errno)")))
    assert said == b"111\n"


async def test_a_port_that_cannot_be_had(tools: Tools) -> None:
    made = Sandbox(tools, "--proxy", "80")
    try:
        await made.spawn()
        assert await made.ended() == 98
    finally:
        await made.remove()


async def test_more_than_there_was_credit_for_ends_that_connection_only(out: Supervisor) -> None:
    held: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.set_result(writer)
        await asyncio.sleep(60)

    out.net.serve(take)
    script = """try:
  s = open_one(); time.sleep(0.5)
  while s.recv(9999): pass
except OSError as e: print(e.errno)"""
    command = await out.start(sh("a", py(script)))
    await held
    for _ in range(8):
        out._link.tell(Message.NET_SEND, bytes(NET_WINDOW), exec_=1)
    out._link.tell(Message.NET_CREDIT, struct.pack("<I", 2**32 - 1), exec_=1)
    assert b"".join([piece.data async for piece in command.pieces()]) == b"104\n"
    await out.ping()
    assert len(out.net) == 0


async def test_a_fault_of_the_one_who_serves_is_one_connection_s(out: Supervisor) -> None:
    async def fail(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1) == b"x":
            raise ZeroDivisionError
        writer.write(b"well")
        writer.close()

    out.net.serve(fail)
    script = py("""for first in b'x', b'y':
    try:
        s = open_one(); s.sendall(first); print(s.recv(9))
    except OSError as e: print(e.errno)""")
    _, said, _ = await finish(out, sh("a", script))
    assert said == b"104\nb'well'\n"


async def test_without_a_controller_connections_are_reset_and_the_sandbox_goes_on(tools: Tools) -> None:
    made = Listening(tools, "--proxy", str(PORT))
    try:
        await made.open()
        first = await made.connect()
        first.net.serve(echo)
        script = py("""s = open_one(); s.sendall(b'a'); print(s.recv(1), flush=True)
def tries(act):
    try: print(act(), flush=True)
    except OSError as e: print(e.errno, flush=True)
tries(lambda: s.recv(1))
tries(lambda: open_one().recv(1))
time.sleep(1.5)
t = open_one(); t.sendall(b'b'); print(t.recv(1))""")
        command = await first.start(sh("a", script))
        async for piece in command.pieces():
            assert piece.data == b"b'a'\n"
            break
        await first.close()
        await asyncio.sleep(0.7)
        second = await made.connect()
        second.net.serve(echo)
        again = await second.attach("a")
        assert b"".join([piece.data async for piece in again.pieces()]) == b"b'a'\n104\n104\nb'b'\n"
        await second.close()
    finally:
        await made.remove()


async def test_connections_that_come_at_once_come_to_the_controller_in_portions(out: Supervisor, box: Sandbox) -> None:
    """Each is work outside, where other sandboxes wait too."""
    came: list[float] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(asyncio.get_running_loop().time())
        writer.close()

    async def opened() -> int:
        return (box.workspace / "opened").exists()

    out.net.serve(note)
    script = py("""import os
while not os.path.exists('/workspace/go'): time.sleep(0.01)
held = [open_one() for _ in range(100)]
open('/workspace/opened', 'w').close()
time.sleep(1)""")
    spans = []
    for n in range(3):  # a machine that stands still for a moment hides the pause between the portions
        came.clear()
        command = await out.start(sh(f"a{n}", script, window=0))
        os.kill(box.pid, signal.SIGSTOP)
        (box.workspace / "go").touch()
        await eventually(opened, 1)
        os.kill(box.pid, signal.SIGCONT)
        assert (await command.closed()).exit_code == 0
        assert len(came) == 100
        spans.append(came[-1] - came[0])
        for name in ("go", "opened"):
            (box.workspace / name).unlink()
    assert max(spans) > 0.09
