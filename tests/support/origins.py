"""Web servers on loopback that stand for the world: with names of their own, plain or with a certificate."""

import asyncio
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certified:
    """A certificate for names, made for this test: `authority` is what a client has to trust."""

    server: ssl.SSLContext
    authority: str

    @property
    def client(self) -> ssl.SSLContext:
        """What a client needs that trusts it."""
        return ssl.create_default_context(cadata=self.authority)


def certified(*names: str) -> Certified:
    """A certificate for these names."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as both:
        both.write(pem + private)
        both.flush()
        server.load_cert_chain(both.name)
    return Certified(server, pem.decode())


@dataclass
class Origin:
    """Answers each request with the page of its path, or 404; remembers the heads."""

    pages: Mapping[str, bytes] = field(repr=False)
    tls: ssl.SSLContext | None = None
    port: int = 0
    heads: list[str] = field(default_factory=list)
    _server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls, backlog=256)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            page = self.pages.get(head.split()[1].partition("?")[0])
            status, body = ("200 OK", page) if page is not None else ("404 Not Found", b"none")
            kind = "text/html" if body[:1] == b"<" else "application/octet-stream"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            writer.write(body)
            await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass  # it looked only whether somebody listens, or went away
        finally:
            writer.close()
