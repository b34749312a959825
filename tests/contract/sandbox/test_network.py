"""The network of sandboxes through the runner: none, or the hosts that are allowed; credentials stay outside."""

import asyncio
import io
import json
import os
import secrets
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pip
import pytest

from agents.contracts.network import DenialReason
from agents.contracts.sandbox import MAX_DENIALS
from services.sandbox.client import RunnerClient
from tests.contract.sandbox.runner import (
    ORDINARY_UID,
    Box,
    RunnerProcess,
    ask,
    make_box,
    new_key,
    owner,
    places,
    until,
)
from tests.support.engine import Engine
from tests.support.origins import Origin, certified

CANARY = f"canary-{secrets.token_hex(8)}"
TLS = certified("mirror.test.org", "api.test.org")


def wheel() -> bytes:
    """A package as an index gives it out."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("parcel.py", "print('unpacked')\n")
        file.writestr("parcel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: parcel\nVersion: 1.0\n")
        file.writestr("parcel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("parcel-1.0.dist-info/RECORD", "parcel.py,,\n")
    return packed.getvalue()


NAME = "parcel-1.0-py3-none-any.whl"
PAGES = {
    "/": b"hello",
    "/big": bytes(50_000_000),
    "/simple/parcel/": f"<a href='/files/{NAME}'>{NAME}</a>".encode(),
    f"/files/{NAME}": wheel(),
}


@pytest.fixture(scope="module", params=places())
def allowing(request: pytest.FixtureRequest, template: Path, engine: Engine | None) -> Iterator[RunnerProcess]:
    """A runner whose operator has private hosts and a credential."""
    folder = Path(tempfile.mkdtemp(prefix="lh-operator-"))
    folder.chmod(0o755)
    credentials = folder / "credentials.json"
    one = {"headers": {"Authorization": f"Bearer {CANARY}"}, "tenants": ["t"]}
    credentials.write_text(json.dumps({"api.test.org": one}))
    credentials.chmod(0o600)
    (folder / "ca.pem").write_text(TLS.authority)
    env = {
        "LONGHAUL_RUNNER_PRIVATE_HOSTS": "mirror.test.org=127.0.0.1, api.test.org=127.0.0.1",
        "LONGHAUL_RUNNER_CREDENTIALS_FILE": str(credentials),
        "SSL_CERT_FILE": str(folder / "ca.pem"),
    }
    runner = RunnerProcess(request.param, template, engine, env=env)
    if runner.switch:
        os.chown(credentials, ORDINARY_UID, ORDINARY_UID)
    try:
        yield runner
    finally:
        runner.remove()
        shutil.rmtree(folder)


@dataclass
class Room:
    """A runner, and what stands outside its sandboxes."""

    runner: RunnerProcess
    client: RunnerClient
    plain: Origin
    secure: Origin

    async def box(self, **more: Any) -> Box:
        """A sandbox with a network. `fetch URL` is there, and trusts the servers."""
        names = [f"mirror.test.org:{self.plain.port}", f"mirror.test.org:{self.secure.port}"]
        allow = [*names, f"api.test.org:{self.secure.port}"]
        made = await make_box(self.client, **({"network": {"allow": allow}} | more))
        program = "import sys, urllib.error, urllib.request as u\n" + (
            "try: print(u.urlopen(sys.argv[1], timeout=20).read().decode())\n"
            "except urllib.error.HTTPError as e: print(e.read().decode())\n"
            "except OSError as e: print('failed:', e)\n"
        )
        await made.out(f"cat > ca.pem <<'END'\n{TLS.authority}END\ncat > fetch.py <<'END'\n{program}END")
        return made


@pytest.fixture
async def room(allowing: RunnerProcess) -> AsyncIterator[Room]:
    if not allowing.lives():
        await asyncio.to_thread(allowing.start)
    async with Origin(PAGES) as plain, Origin(PAGES, TLS.server) as secure, allowing.client() as client:
        yield Room(allowing, client, plain, secure)


def fetch(url: str) -> str:
    """A command that prints what is there."""
    return f"SSL_CERT_FILE=/workspace/ca.pem python3 /workspace/fetch.py {url}"


async def test_a_sandbox_has_no_network_unless_it_is_asked_for(client: RunnerClient, box: Box) -> None:
    assert (await box.out("env | grep -ic proxy || true")).strip() == "0"
    connect = "import socket; socket.create_connection(('127.0.0.1', 3128), 3)"
    status = await box.run(f'python3 -c "{connect}"')
    assert "Connection refused" in status.output


async def test_what_is_allowed_is_reached_and_nothing_is_told(room: Room) -> None:
    box = await room.box()
    places = [f"http://mirror.test.org:{room.plain.port}/", f"https://mirror.test.org:{room.secure.port}/"]
    for place in places:
        status = await box.run(fetch(place))
        assert (status.output, status.denied) == ("hello\n", ())
    assert len(room.plain.heads) == len(room.secure.heads) == 1


async def test_pip_gets_its_packages(room: Room) -> None:
    """The real one, by TLS and plain."""
    box = await room.box()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(Path(pip.__file__).parent, "tool/pip", filter=lambda i: None if "__pycache__" in i.name else i)

    async def upload() -> AsyncIterator[bytes]:
        yield packed.getvalue()

    await room.client.put_archive(box.id, new_key(), owner(), upload())
    for url in (f"https://mirror.test.org:{room.secure.port}", f"http://mirror.test.org:{room.plain.port}"):
        get = (
            f"rm -rf got; PYTHONPATH=tool python3 -m pip install -q --no-deps --no-cache-dir --target got "
            f"--cert ca.pem --trusted-host mirror.test.org --index-url {url}/simple parcel && "
            "PYTHONPATH=got python3 -m parcel"
        )
        status = await box.run(get, timeout_s=60)
        assert status.output.endswith("unpacked\n"), status
        assert status.denied == ()


async def test_what_was_refused_is_told_with_the_command_and_stays_told(room: Room) -> None:
    box = await room.box()
    places = ["http://evil.test.org/", f"http://mirror.test.org:{room.secure.port + 1}/", "https://evil.test.org/"]
    request = ask("; ".join(map(fetch, [*places, "http://169.254.169.254/", *places])))
    status = await room.client.exec(box.id, request)
    assert [(d.host, d.port, d.reason) for d in status.denied] == [
        ("evil.test.org", 80, DenialReason.HOST_NOT_ALLOWED),
        ("mirror.test.org", room.secure.port + 1, DenialReason.PORT_NOT_ALLOWED),
        ("evil.test.org", 443, DenialReason.HOST_NOT_ALLOWED),
        ("169.254.169.254", 80, DenialReason.HOST_NOT_ALLOWED),
    ]
    assert "EGRESS_DENIED" in status.output
    assert f"It may reach mirror.test.org:{room.plain.port}, " in status.output
    assert "403 host_not_allowed" in status.output, "of a tunnel a tool shows the status only"
    assert (await room.client.exec(box.id, request)).denied == status.denied
    room.runner.kill()
    await asyncio.to_thread(room.runner.start)
    assert (await room.client.exec(box.id, request)).denied == status.denied
    assert (await box.run("true")).denied == ()


async def test_a_flood_of_refusals_is_bounded(room: Room) -> None:
    box = await room.box()
    source = (
        "import urllib.request as u\nfor n in range(60):\n"
        "    try: u.urlopen(f'http://h{n % 30}.test.org/')\n    except OSError: pass\n"
    )
    status = await box.run(f"python3 - <<'END'\n{source}END")
    assert [d.host for d in status.denied] == [f"h{n}.test.org" for n in range(MAX_DENIALS)]


async def test_a_credential_is_used_and_never_inside(room: Room) -> None:
    box = await room.box()
    status = await box.run(fetch(f"http://api.test.org:{room.secure.port}/"))
    assert status.output == "hello\n"
    assert f"Authorization: Bearer {CANARY}" in room.secure.heads[0]
    through = await box.run(fetch(f"https://api.test.org:{room.secure.port}/"))
    assert through.output == "hello\n"
    assert "Authorization" not in room.secure.heads[1]
    await box.run(fetch(f"http://mirror.test.org:{room.plain.port}/"))
    assert CANARY not in "".join(room.plain.heads)
    unlike = f"{CANARY[:-1]}[{CANARY[-1]}]"
    looked = await box.run(f"env; cat /proc/*/environ /proc/*/cmdline; grep -rs {unlike} /tmp /workspace /etc; true")
    assert CANARY not in looked.output + status.output + room.runner.said()
    for path in room.runner.data.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert CANARY.encode() not in path.read_bytes(), path


async def test_a_credential_of_other_tenants_is_not_used(room: Room) -> None:
    box = await room.box(tenant_id="u")
    status = await box.run(fetch(f"http://api.test.org:{room.secure.port}/"))
    assert CANARY not in status.output + "".join(room.secure.heads)
    assert "hello" not in status.output


async def test_a_copy_has_the_network_that_it_is_given(room: Room) -> None:
    box = await room.box()
    url = f"http://mirror.test.org:{room.plain.port}/"
    without = await make_box(room.client, copy_of=box.id)
    assert (await without.run(fetch(url))).output.startswith("failed:")
    copy = await room.box(copy_of=box.id)
    assert (await copy.run(fetch(url))).output == "hello\n"
    assert len(room.plain.heads) == 1


async def test_a_runner_that_is_killed_resets_connections_and_the_sandbox_goes_on(room: Room) -> None:
    box = await room.box()
    source = f"""import socket, time
def connect():
    s = socket.create_connection(('127.0.0.1', 3128), 20)
    s.sendall(b'CONNECT mirror.test.org:{room.plain.port} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')
    return s, s.recv(100).split()[1]
s, status = connect()
print(status, flush=True)
open('/workspace/connected', 'w').close()
try: print(s.recv(1))
except OSError as e: print('reset', e.errno)
for _ in range(200):
    try:
        t, status = connect()
        break
    except (OSError, IndexError): time.sleep(0.1)
print(status)"""
    running = asyncio.create_task(room.client.exec(box.id, ask(f"python3 - <<'END'\n{source}\nEND", timeout_s=60)))
    await until(lambda: (room.runner.home(box.id).workspace / "connected").exists())
    room.runner.kill()
    await asyncio.sleep(0.5)
    await asyncio.to_thread(room.runner.start)
    status = await running
    assert status.output == "b'200'\nreset 104\nb'200'\n"
    assert status.reason == "exited"


async def test_a_hundred_at_once_and_a_download_beside_them(room: Room) -> None:
    box = await room.box()
    source = f"""import threading, urllib.request as u
got = []
def one(n): got.append(u.urlopen('http://mirror.test.org:{room.plain.port}/', timeout=30).read())
threads = [threading.Thread(target=one, args=(n,)) for n in range(100)]
for t in threads: t.start()
data = u.urlopen('http://mirror.test.org:{room.plain.port}/big', timeout=30).read()
for t in threads: t.join()
print(got.count(b'hello'), len(data))"""
    status = await box.run(f"python3 - <<'END'\n{source}\nEND", timeout_s=60)
    assert (status.output, status.denied) == (f"100 {len(PAGES['/big'])}\n", ())
