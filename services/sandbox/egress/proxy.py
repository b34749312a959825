"""The proxy of one sandbox: a decision for each connection, by name and then by address; then bytes both ways.

A sandbox has no network. What it sends to 127.0.0.1:3128 inside is handed over to `serve`, whatever carries it. Names
are resolved here and once, and what was resolved and judged is what is connected to. Plain requests to a host with a
credential go on by TLS with the credential's header, so that the secret is never inside.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import h11

from agents.contracts.network import Denial, DenialReason, NetworkPolicy, decide
from services.sandbox.egress.addresses import Address, Hosts, Judge
from services.sandbox.egress.request import Asked, BadRequest, Headers, Wanted

CONNECT_WITHIN_S = 10.0
IDLE_S = 600.0
MAX_CONNECTIONS = 112  # fewer than a supervisor lets through, so that the next one is told
MAX_HOST = 253
_CHUNK = 65_536
_LINGER_S = 2.0

_STATUS = {DenialReason.BAD_REQUEST: 400, DenialReason.TOO_MANY: 429}
_STATUS |= {DenialReason.NOT_RESOLVED: 502, DenialReason.UNREACHABLE: 502}
_WORDS = {
    DenialReason.HOST_NOT_ALLOWED: "this sandbox may not reach {host}. {allowed}",
    DenialReason.PORT_NOT_ALLOWED: "this sandbox may not reach port {port} of {host}. {allowed}",
    DenialReason.PRIVATE_ADDRESS: "{host} leads to an address that is not public; sandboxes never reach those",
    DenialReason.NOT_RESOLVED: "no host of the name {host} is known",
    DenialReason.UNREACHABLE: "{host}:{port} does not answer",
    DenialReason.TOO_MANY: f"{MAX_CONNECTIONS} connections are open; close one first",
}

Resolve = Callable[[str, int], Awaitable[list[Address]]]
Tell = Callable[[Denial], Awaitable[None]]
_HOW = "Others have to be named when the task is submitted (network.allow): say so if the work cannot be done without."


@dataclass(frozen=True)
class World:
    """What lies outside: names, addresses, certificates. Exchanged in tests, where everything is on loopback."""

    resolve: Resolve = Hosts().resolve
    judge: Judge = Hosts().judge
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)


class _Denied(Exception):
    def __init__(self, host: str, port: int, reason: DenialReason, why: str = "") -> None:
        self.denial = Denial(host=host[:MAX_HOST], port=port, reason=reason)
        self.why = why


class Proxy:
    """One sandbox's way out. `credentials` are headers by host name; `tell` hears of every denial.

    A plain request to a host with a credential goes on by TLS: to the port that it names, to 443 where it names none.
    """

    def __init__(
        self,
        policy: NetworkPolicy,
        tell: Tell,
        credentials: Mapping[str, Headers] | None = None,
        world: World | None = None,
    ) -> None:
        self._rules = policy.rules
        self._allowed = f"It may reach {', '.join(policy.allow) or 'nothing'}. {_HOW}"
        self._tell = tell
        self._credentials = credentials or {}
        self._world = world or World()
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end. Never raises what a sandbox or a server did."""
        try:
            await self._serve(reader, writer)
        except _Denied as denied:
            await self._tell(denied.denial)
            await _refuse(reader, writer, denied.denial, denied.why or self._words(denied.denial))
        except (OSError, BadRequest, asyncio.IncompleteReadError, TimeoutError):
            pass  # one of the two ends went away, or said nothing for `IDLE_S`: both learn it by the end of the stream
        finally:
            await _close(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = Asked(reader)
        try:
            wanted = await asked.wanted()
        except BadRequest as error:
            raise _Denied("", 0, DenialReason.BAD_REQUEST, str(error)) from error
        async with self._room(wanted), self._connected(wanted) as (up, down):
            if wanted.tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                down.write(asked.early)
                sending = _copy(reader, down)
            else:
                sending = _send(asked, wanted.request(self._credentials.get(wanted.host, ())), down)
            await _both(sending, _copy(up, writer))

    def _words(self, denial: Denial) -> str:
        return _WORDS[denial.reason].format(host=denial.host, port=denial.port, allowed=self._allowed)

    @asynccontextmanager
    async def _room(self, wanted: Wanted) -> AsyncIterator[None]:
        if self._open >= MAX_CONNECTIONS:
            raise _Denied(wanted.host, wanted.port, DenialReason.TOO_MANY)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    @asynccontextmanager
    async def _connected(self, wanted: Wanted) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        secret = not wanted.tunnel and wanted.host in self._credentials
        port = 443 if secret and wanted.port == 80 else wanted.port
        addresses = await self._judged(wanted.host, port)
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                reader, writer = await self._first(addresses, port, wanted.host if secret else None)
        except (OSError, TimeoutError) as error:
            raise _Denied(wanted.host, port, DenialReason.UNREACHABLE) from error
        try:
            yield reader, writer
        finally:
            await _close(writer)

    async def _first(
        self, addresses: list[Address], port: int, name: str | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connected to the first that answers; by TLS where it has to prove its name."""
        tls = self._world.tls if name is not None else None
        for last, address in enumerate(addresses, 1):
            try:
                return await asyncio.open_connection(str(address), port, ssl=tls, server_hostname=name)
            except OSError:
                if last == len(addresses):
                    raise
        raise OSError("there is no address")

    async def _judged(self, host: str, port: int) -> list[Address]:
        """Resolved once, and what is judged here is what is connected to."""
        if reason := decide(self._rules, host, port):
            raise _Denied(host, port, reason)
        found: list[Address] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_WITHIN_S):
                found = await self._world.resolve(host, port)
        if not found:
            raise _Denied(host, port, DenialReason.NOT_RESOLVED)
        if not all(self._world.judge(host, address) for address in found):
            raise _Denied(host, port, DenialReason.PRIVATE_ADDRESS)
        return found


async def _send(asked: Asked, request: h11.Request, down: asyncio.StreamWriter) -> None:
    framing = h11.Connection(h11.CLIENT)
    down.write(framing.send(request) or b"")
    async for data in asked.body():
        down.write(framing.send(h11.Data(data=data)) or b"")
        await down.drain()
    down.write(framing.send(h11.EndOfMessage()) or b"")
    await down.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        async with asyncio.timeout(IDLE_S):
            data = await reader.read(_CHUNK)
            if not data:
                break
            writer.write(data)
            await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _both(sending: Awaitable[None], receiving: Awaitable[None]) -> None:
    """Until the answer is at its end; a client that only stopped sending still gets it."""
    send = asyncio.ensure_future(sending)
    try:
        await receiving
    finally:
        send.cancel()
        await asyncio.wait([send])
        if not send.cancelled():
            send.exception()  # a client that went away while it sent: the answer was at its end anyway


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, denial: Denial, why: str) -> None:
    body = json.dumps({"code": "EGRESS_DENIED", "reason": denial.reason, "detail": why}).encode()
    status = _STATUS.get(denial.reason, 403)
    head = (
        f"HTTP/1.1 {status} {denial.reason}\r\nContent-Type: application/problem+json\r\n"
        f"Content-Length: {len(body)}\r\n"
    )
    with suppress(OSError, TimeoutError):
        writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        writer.write_eof()
        async with asyncio.timeout(_LINGER_S):  # closing with something unread would take the answer with it
            while await reader.read(_CHUNK):
                pass


async def _close(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.close()
        await writer.wait_closed()
