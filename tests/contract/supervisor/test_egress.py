"""Out of a sandbox through the proxy: what is allowed is reached, everything else is not, by whatever way."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from ipaddress import ip_address

import pytest

from agents.contracts.network import Denial, DenialReason, NetworkPolicy
from services.sandbox.egress.addresses import Address, Hosts
from services.sandbox.egress.proxy import Proxy, World
from services.sandbox.network import PORT, environment
from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.messages import Order
from tests.contract.supervisor.box import PATH, Sandbox, Tools
from tests.support.origins import Origin, certified

HERE = ip_address("127.0.0.1")
BIG = bytes(range(256)) * 204_800
PAGES = {"/": b"hello", "/big": BIG}
TLS = certified("secure.test.org")


class Names:
    """A table of names; a name with several answers gives them one after the other, as a rebinding resolver does."""

    def __init__(self) -> None:
        self.table: dict[str, list[str]] = {
            "good.test.org": ["127.0.0.1"],
            "secure.test.org": ["127.0.0.1"],
            "inside.test.org": ["10.0.0.5"],
            "metadata.test.org": ["169.254.169.254"],
            "rebinding.test.org": ["127.0.0.1", "10.0.0.5"],
        }
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        answers = self.table.get(host, [])
        return [ip_address(answers.pop(0) if len(answers) > 1 else answers[0])] if answers else []


def judge(host: str, address: Address) -> bool:
    """The loopback stands for the world here, and nothing else does."""
    return address == HERE or Hosts().judge(host, address)


@dataclass
class Room:
    """A sandbox with a way out, and what stands outside."""

    box: Sandbox
    client: Supervisor
    plain: Origin
    secure: Origin
    names: Names
    denied: list[Denial] = field(default_factory=list)

    async def run(self, source: str, seconds: float = 60) -> str:
        """What a Python program prints. `plain` and `secure` are the ports of the two servers."""
        lines = (
            "import hashlib, json, os, socket, ssl, subprocess, sys, threading, urllib.error, urllib.request",
            f"plain, secure = {self.plain.port}, {self.secure.port}",
            "def get(url):",
            "    try: return urllib.request.urlopen(url, timeout=20).read()",
            "    except urllib.error.HTTPError as e: return e.read()",
            "def reach(family, kind, address):",
            "    with socket.socket(family, kind) as s:",
            "        s.settimeout(2)",
            "        try:",
            "            s.connect(address); s.send(b'x')",
            "            return 'reached' if kind == socket.SOCK_STREAM else s.recv(1)",
            "        except OSError as e: return 'no way'",
        )
        program = "\n".join([*lines, source]).encode()
        env = {**PATH, **environment(POLICY), "SSL_CERT_FILE": "/workspace/ca.pem"}
        order = Order(id=hashlib.sha256(program).hexdigest()[:60], argv=("python3", "-"), env=env, stdin=program)
        done = await asyncio.wait_for(self.client.run(order), seconds)
        assert (done.entry.exit_code, done.stderr) == (0, b""), done
        return done.stdout.decode().strip()


POLICY = NetworkPolicy(allow=("pypi.org",))  # that there is one; the room's own is made when its ports are known


@pytest.fixture
async def room(tools: Tools) -> AsyncIterator[Room]:
    async with AsyncExitStack() as ends:
        plain = await ends.enter_async_context(Origin(PAGES))
        secure = await ends.enter_async_context(Origin(PAGES, TLS.server))
        box = Sandbox(tools, "--proxy", str(PORT))
        ends.push_async_callback(box.remove)
        client = await box.start()
        ends.push_async_callback(client.close)
        (box.workspace / "ca.pem").write_text(TLS.authority)
        made = Room(box, client, plain, secure, Names())
        hosts = [f"{name}:{plain.port}" for name in ("good.test.org", "rebinding.test.org", "gone.test.org")]
        hosts += [f"secure.test.org:{secure.port}", f"inside.test.org:{plain.port}", f"metadata.test.org:{plain.port}"]

        async def tell(denial: Denial) -> None:
            made.denied.append(denial)

        proxy = Proxy(NetworkPolicy(allow=tuple(hosts)), tell, world=World(made.names, judge))
        client.net.serve(proxy.serve)
        yield made


async def test_an_allowed_host_plain_and_by_tls(room: Room) -> None:
    said = await room.run("print(get(f'http://good.test.org:{plain}/'), get(f'https://secure.test.org:{secure}/'))")
    assert said == "b'hello' b'hello'"
    assert room.denied == []
    assert len(room.plain.heads) == len(room.secure.heads) == 1


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://evil.test.org:{plain}/", DenialReason.HOST_NOT_ALLOWED),
        ("http://good.test.org:{secure}/", DenialReason.PORT_NOT_ALLOWED),
        ("http://127.0.0.2:{plain}/", DenialReason.HOST_NOT_ALLOWED),
        ("http://169.254.169.254/latest/meta-data/", DenialReason.HOST_NOT_ALLOWED),
        ("http://2130706433:{plain}/", DenialReason.HOST_NOT_ALLOWED),
        ("http://inside.test.org:{plain}/", DenialReason.PRIVATE_ADDRESS),
        ("http://metadata.test.org:{plain}/", DenialReason.PRIVATE_ADDRESS),
        ("http://gone.test.org:{plain}/", DenialReason.NOT_RESOLVED),
        ("https://evil.test.org/", DenialReason.HOST_NOT_ALLOWED),
        ("https://inside.test.org:{plain}/", DenialReason.PRIVATE_ADDRESS),
    ],
)
async def test_everything_else_is_refused_in_words(room: Room, url: str, reason: DenialReason) -> None:
    said = await room.run(
        f"try: print(get(f{url!r}).decode())\nexcept urllib.error.URLError as e: print(json.dumps(str(e.reason)))"
    )
    assert [denial.reason for denial in room.denied] == [reason]
    assert reason.value in said
    assert room.plain.heads == room.secure.heads == []
    if reason is DenialReason.HOST_NOT_ALLOWED and url.startswith("http:"):
        assert f"It may reach good.test.org:{room.plain.port}, " in json.loads(said)["detail"]


async def test_a_name_is_resolved_once_and_what_was_judged_is_connected_to(room: Room) -> None:
    said = await room.run(
        "print(get(f'http://rebinding.test.org:{plain}/'), get(f'http://rebinding.test.org:{plain}/'))"
    )
    assert said.startswith("b'hello' b'{")
    assert room.names.asked == ["rebinding.test.org", "rebinding.test.org"]
    assert [denial.reason for denial in room.denied] == [DenialReason.PRIVATE_ADDRESS]
    assert len(room.plain.heads) == 1


DIRECT: dict[str, Callable[[Room], str]] = {
    "the internet": lambda room: "print(reach(socket.AF_INET, socket.SOCK_STREAM, ('1.1.1.1', 443)))",
    "the internet by version 6": lambda room: (
        "print(reach(socket.AF_INET6, socket.SOCK_STREAM, ('2606:4700::1111', 443)))"
    ),
    "the name service": lambda room: "print(reach(socket.AF_INET, socket.SOCK_DGRAM, ('8.8.8.8', 53)))",
    "the metadata": lambda room: "print(reach(socket.AF_INET, socket.SOCK_STREAM, ('169.254.169.254', 80)))",
    "a server of the host": lambda room: "print(reach(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', plain)))",
    "a name": lambda room: "try: print(socket.getaddrinfo('good.test.org', 80))\nexcept OSError: print('no way')",
    "past the proxy's variables": lambda room: (
        "opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))\n"
        "try: print(opener.open(f'http://127.0.0.1:{plain}/', timeout=3).read())\nexcept OSError: print('no way')"
    ),
    "with curl": lambda room: (
        "def curl():\n"
        "    try: return subprocess.run(['curl', '-sS', '--noproxy', '*', '-m', '3', f'http://good.test.org:{plain}/'],"
        " capture_output=True).returncode\n"
        "    except FileNotFoundError: return 'there is none'\n"
        "print('no way' if curl() else 'reached')"
    ),
}


@pytest.mark.parametrize("what", DIRECT)
async def test_there_is_no_other_way_out(room: Room, what: str) -> None:
    assert await room.run(DIRECT[what](room)) == "no way"
    assert room.plain.heads == []


async def test_a_hundred_at_once(room: Room) -> None:
    said = await room.run(
        "got = []\n"
        "def one(n):\n"
        "    url = f'http://good.test.org:{plain}/' if n % 2 else f'https://secure.test.org:{secure}/'\n"
        "    got.append(get(url) == b'hello')\n"
        "threads = [threading.Thread(target=one, args=(n,)) for n in range(100)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n"
        "print(len(got), all(got))"
    )
    assert said == "100 True"
    assert room.denied == []


@pytest.mark.parametrize("place", ["http://good.test.org:{plain}/big", "https://secure.test.org:{secure}/big"])
async def test_fifty_megabytes(room: Room, place: str) -> None:
    said = await room.run(f"data = get(f{place!r})\nprint(len(data), hashlib.sha256(data).hexdigest())")
    assert said == f"{len(BIG)} {hashlib.sha256(BIG).hexdigest()}"
