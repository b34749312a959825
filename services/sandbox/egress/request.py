"""A proxy request, read from a sandbox: where it wants to go, and what has to be sent there."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

MAX_HEAD_BYTES = 32 << 10
HEAD_WITHIN_S = 10.0

Headers = tuple[tuple[bytes, bytes], ...]

_HOP = {b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"te", b"trailer", b"upgrade"}
_OURS = _HOP | {b"host"}


class BadRequest(Exception):
    """Not a request that a proxy can serve. The text says why, to the one who sent it."""


@dataclass(frozen=True)
class Wanted:
    """A connection that is asked for: a tunnel (CONNECT), or one plain request."""

    host: str
    port: int
    tunnel: bool
    method: bytes = b""
    target: bytes = b""
    headers: Headers = ()

    def request(self, extra: Headers = ()) -> h11.Request:
        """The plain request as its server gets it; `extra` headers replace those of the same name."""
        replaced = {name.lower() for name, _ in extra}
        kept = [(name, value) for name, value in self.headers if name.lower() not in replaced]
        headers = [*kept, *extra, (b"Connection", b"close")]
        return h11.Request(method=self.method, target=self.target, headers=headers)


class Asked:
    """One request of a sandbox, as it comes in: `wanted` first, then `body` or, of a tunnel, `early`.

    Only one is ever read from a connection: what was decided holds for all that it carries.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def wanted(self) -> Wanted:
        """Where it wants to go.

        Raises:
            BadRequest: it is no request, too long, too slow, or there is none.
        """
        try:
            async with asyncio.timeout(HEAD_WITHIN_S):
                event = await self._next()
        except TimeoutError:
            raise BadRequest(f"no whole request within {HEAD_WITHIN_S:.0f} s") from None
        if not isinstance(event, h11.Request):
            raise BadRequest("the connection ended before a request")
        return _tunnel(event) if event.method == b"CONNECT" else _plain(event)

    @property
    def early(self) -> bytes:
        """What came behind the head of a CONNECT already."""
        return bytes(self._parser.trailing_data[0])

    async def body(self) -> AsyncIterator[bytes]:
        """The body of a plain request.

        Raises:
            BadRequest: it breaks off.
        """
        while not isinstance(event := await self._next(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise BadRequest("the request broke off")
            yield bytes(event.data)

    async def _next(self) -> h11.Event:
        try:
            while (event := self._parser.next_event()) is h11.NEED_DATA:
                self._parser.receive_data(await self._reader.read(65_536))
        except h11.RemoteProtocolError as error:
            raise BadRequest(f"not an HTTP request: {error}") from error
        assert isinstance(event, h11.Event)
        return event


def _tunnel(request: h11.Request) -> Wanted:
    host, port = _place("//" + request.target.decode("latin-1"), None)
    return Wanted(host, port, tunnel=True)


def _plain(request: h11.Request) -> Wanted:
    url = request.target.decode("latin-1")
    if not url.lower().startswith("http://"):
        raise BadRequest("ask the proxy with a whole address (http://host/path), or with CONNECT for https")
    host, port = _place(url, 80)
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    name = host if port == 80 else f"{host}:{port}"
    # what the request itself says of its host does not count: the decision is made on the address, and holds for it
    kept = [(key, value) for key, value in request.headers.raw_items() if key.lower() not in _OURS]
    headers = ((b"Host", name.encode("latin-1")), *kept)
    return Wanted(host, port, False, request.method, target.encode("latin-1"), headers)


def _place(url: str, port: int | None) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or port
    except ValueError as error:
        raise BadRequest(f"not an address: {error}") from error
    if not host or not port or "@" in parts.netloc or parts.netloc.startswith("["):
        raise BadRequest("name a host and a port; no user name and no IP address")
    return host.removesuffix(".").lower(), port
