"""The proxy on real sockets: everything is on loopback, where a small table stands for the names of the world."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address

import httpx
import pytest

from agents.contracts.network import Denial, DenialReason, NetworkPolicy
from services.sandbox.egress import proxy as egress
from services.sandbox.egress.addresses import Address, Hosts
from services.sandbox.egress.proxy import Proxy, World
from services.sandbox.egress.request import MAX_HEAD_BYTES, Headers
from tests.support.origins import certified

SECRET = "Bearer kept-outside-4711"


@dataclass
class Origin:
    """A server that answers each request with what it was sent."""

    port: int = 0
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except asyncio.IncompleteReadError:
            pass  # it was only connected to
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        body = b""
        if "content-length:" in head.lower():
            body = await reader.readexactly(int(head.lower().split("content-length:")[1].split("\r\n")[0]))
        elif "chunked" in head.lower():
            body = await reader.readuntil(b"0\r\n\r\n")
        self.bodies.append(body)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()


class Names:
    """A table of names, as a resolver."""

    def __init__(self, table: Mapping[str, str]) -> None:
        self._table = table
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        return [ip_address(text) for text in self._table.get(host, "").split()]


def loopback(host: str, address: Address) -> bool:
    """What counts as public here."""
    return address.is_loopback


@dataclass
class Room:
    """A proxy that listens, one origin behind it, and what was denied."""

    origin: Origin
    port: int
    denied: list[Denial]

    async def raw(self, data: bytes) -> bytes:
        """What a client that sends these bytes gets, to the end of the stream."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(15):
            answer = await reader.read()
        writer.close()
        return answer

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(proxy=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=10)


@asynccontextmanager
async def room(
    world: World | None = None,
    credentials: Mapping[str, Headers] | None = None,
    tls: ssl.SSLContext | None = None,
    trust: ssl.SSLContext | None = None,
) -> AsyncIterator[Room]:
    origin = Origin()
    async with await asyncio.start_server(origin.serve, "127.0.0.1", 0, ssl=tls) as server:
        origin.port = server.sockets[0].getsockname()[1]
        names = Names({"good.test.org": "127.0.0.1"})
        world = world or World(names, loopback, trust or ssl.create_default_context())
        rules = [f"{host}:{origin.port}" for host in ("good.test.org", "inside.test.org", "gone.test.org")]
        denied: list[Denial] = []

        async def tell(denial: Denial) -> None:
            denied.append(denial)

        made = Proxy(NetworkPolicy(allow=tuple(rules)), tell, credentials, world)
        async with await asyncio.start_server(made.serve, "127.0.0.1", 0) as front:
            yield Room(origin, front.sockets[0].getsockname()[1], denied)


async def test_a_plain_request_to_an_allowed_host() -> None:
    async with room() as here, here.client() as client:
        answer = await client.post(f"http://good.test.org:{here.origin.port}/path?q=1", content=b"x" * 300_000)
        assert (answer.status_code, answer.text) == (200, "hello")
        assert here.origin.heads[0].startswith("POST /path?q=1 HTTP/1.1\r\n")
        assert here.origin.bodies == [b"x" * 300_000]
        assert here.denied == []


async def test_a_tunnel_to_an_allowed_host_carries_bytes_both_ways() -> None:
    async with room() as here:
        place = f"GOOD.test.org.:{here.origin.port}"
        early = b"GET /early HTTP/1.1\r\n\r\n"
        answer = await here.raw(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode() + early)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"hello")
        assert here.origin.heads == [early.decode()]


@pytest.mark.parametrize(
    "form",
    ["CONNECT {host}:{port} HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://{host}:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n"],
)
@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("evil.test.org", DenialReason.HOST_NOT_ALLOWED),
        ("127.0.0.1", DenialReason.HOST_NOT_ALLOWED),
        ("169.254.169.254", DenialReason.HOST_NOT_ALLOWED),
        ("localhost", DenialReason.HOST_NOT_ALLOWED),
        ("2130706433", DenialReason.HOST_NOT_ALLOWED),
        ("[::1]", DenialReason.BAD_REQUEST),
        ("good.test.org@evil.test.org", DenialReason.BAD_REQUEST),
        ("gone.test.org", DenialReason.NOT_RESOLVED),
    ],
)
async def test_nothing_else_is_reached(form: str, host: str, reason: DenialReason) -> None:
    async with room() as here:
        answer = await here.raw(form.format(host=host, port=here.origin.port).encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        assert json.loads(body)["code"] == "EGRESS_DENIED"
        assert json.loads(body)["reason"] == reason
        assert head.split()[1] in {b"400", b"403", b"502"}
        assert [denial.reason for denial in here.denied] == [reason]
        assert here.origin.heads == []


async def test_another_port_of_an_allowed_host() -> None:
    async with room() as here:
        answer = await here.raw(b"CONNECT good.test.org:22 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"port_not_allowed" in answer
        assert here.denied[0].port == 22


@pytest.mark.parametrize("leads_to", ["127.0.0.1", "169.254.169.254", "1.1.1.1 10.0.0.5", "::ffff:10.0.0.5"])
async def test_an_allowed_name_that_leads_inside(leads_to: str) -> None:
    names = Names({"inside.test.org": leads_to})
    async with room(world=World(names, Hosts().judge)) as here:
        answer = await here.raw(f"CONNECT inside.test.org:{here.origin.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert b"private_address" in answer
        assert names.asked == ["inside.test.org"]
        assert here.origin.heads == []


async def test_what_the_request_says_of_its_host_does_not_count() -> None:
    async with room() as here:
        url = f"http://good.test.org:{here.origin.port}/"
        await here.raw(f"GET {url} HTTP/1.1\r\nHost: evil.test.org\r\nProxy-Authorization: x\r\n\r\n".encode())
        head = here.origin.heads[0].lower()
        assert f"host: good.test.org:{here.origin.port}" in head
        assert "evil" not in head
        assert "proxy-auth" not in head


async def test_one_connection_is_one_decision() -> None:
    async with room() as here:
        url = f"http://good.test.org:{here.origin.port}/"
        one = f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        answer = await here.raw(one + b"GET http://evil.test.org/ HTTP/1.1\r\nHost: evil.test.org\r\n\r\n" + one)
        assert answer.count(b"HTTP/1.1 200") == 1
        assert len(here.origin.heads) == 1


async def test_bytes_behind_a_body_go_nowhere() -> None:
    async with room() as here:
        url = f"http://good.test.org:{here.origin.port}/"
        smuggled = b"GET /smuggled HTTP/1.1\r\nHost: evil.test.org\r\n\r\n"
        await here.raw(f"POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok".encode() + smuggled)
        assert here.origin.bodies == [b"ok"]
        assert len(here.origin.heads) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x00garbage\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: good.test.org\r\n\r\n",
        b"GET https://good.test.org/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT good.test.org HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT good.test.org:99999 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://good.test.org/ HTTP/1.1\r\nHost: x\r\nX: " + b"a" * (4 * MAX_HEAD_BYTES) + b"\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused_in_words(data: bytes) -> None:
    async with room() as here:
        answer = await here.raw(data)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b'"detail": "' in answer
        assert here.origin.heads == []


async def test_a_client_that_goes_away_is_no_fault() -> None:
    async with room() as here:
        url = f"http://good.test.org:{here.origin.port}/"
        for data in (
            b"",
            b"CONN",
            f"POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab".encode(),
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", here.port)
            writer.write(data)
            await writer.drain()
            writer.close()
        async with here.client() as client:
            assert (await client.get(url)).text == "hello"


async def test_only_so_many_at_once() -> None:
    async with room() as here:
        held = []
        for _ in range(egress.MAX_CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
            writer.write(f"CONNECT good.test.org:{here.origin.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert b" 200 " in await reader.readline()
            held.append(writer)
        request = f"CONNECT good.test.org:{here.origin.port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        assert (await here.raw(request)).startswith(b"HTTP/1.1 429 ")
        for writer in held:
            writer.close()
            await writer.wait_closed()
        await asyncio.sleep(0.5)
        async with here.client() as client:
            assert (await client.get(f"http://good.test.org:{here.origin.port}/")).text == "hello"


@pytest.mark.parametrize(("named", "works"), [("good.test.org", True), ("other.test.org", False)])
async def test_a_credential_is_put_in_outside_and_only_for_a_server_that_proves_its_name(
    named: str, works: bool
) -> None:
    made = certified(named)
    credentials = {"good.test.org": ((b"Authorization", SECRET.encode()),)}
    async with room(credentials=credentials, tls=made.server, trust=made.client) as here:
        url = f"http://good.test.org:{here.origin.port}/x"
        answer = await here.raw(f"GET {url} HTTP/1.1\r\nHost: x\r\nAuthorization: mine\r\n\r\n".encode())
        assert SECRET.encode() not in answer
        if works:
            assert answer.endswith(b"hello")
            assert f"Authorization: {SECRET}" in here.origin.heads[0]
            assert "mine" not in here.origin.heads[0]
        else:
            assert b"unreachable" in answer
            assert here.origin.heads == []
