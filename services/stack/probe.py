"""Questions to a server over the loopback: a tiny HTTP client and Amazon's request signature.

The launcher lives as long as the stack, so it carries no HTTP library, no boto3 and no threads (it forks).
"""

import asyncio
import hashlib
import hmac
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from services.stack.ports import HOST


class Answer(NamedTuple):
    """Status 0 means: nobody answered."""

    status: int
    body: bytes


async def ask(
    port: int,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    timeout_s: float = 5.0,
) -> Answer:
    """One HTTP request; never raises for a server that is down, slow or talks nonsense."""
    try:
        async with asyncio.timeout(timeout_s):  # wait_for would swallow a cancel that meets the answer
            return await _ask(port, path, method, headers or {}, body)
    except (OSError, TimeoutError, ValueError, IndexError, asyncio.IncompleteReadError):
        return Answer(0, b"")


async def _ask(port: int, path: str, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        lines = {"Host": f"{HOST}:{port}", "Connection": "close", "Content-Length": str(len(body)), **headers}
        # 1.0, because to it no server answers in chunks, as some do as soon as there is more than 2 KiB to say
        head = f"{method} {path} HTTP/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(head.encode() + b"\r\n" + body)
        await writer.drain()
        head_bytes = await reader.readuntil(b"\r\n\r\n")
        length = _content_length(head_bytes)
        text = await (reader.read() if length is None else reader.readexactly(length))
        return Answer(int(head_bytes.split(b" ", 2)[1]), text)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def listed(answer: Answer, name: str) -> list[dict[str, Any]]:
    """The list of that name in an answer of JSON; empty where there is none, or no sound answer."""
    try:
        found = json.loads(answer.body).get(name) if answer.status == 200 else None
    except (ValueError, AttributeError):
        return []
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _content_length(head: bytes) -> int | None:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return None


async def ask_s3(
    port: int,
    key: str,
    *,
    method: str,
    access_key: str,
    secret_key: str,
    region: str,
    body: bytes = b"",
    now: datetime | None = None,
) -> Answer:
    """One request to S3, signed with Signature Version 4. `key` is ``bucket`` or ``bucket/object``."""
    moment = now or datetime.now(UTC)
    stamp, day = moment.strftime("%Y%m%dT%H%M%SZ"), moment.strftime("%Y%m%d")
    digest, path = hashlib.sha256(body).hexdigest(), "/" + quote(key)
    signed = {"host": f"{HOST}:{port}", "x-amz-content-sha256": digest, "x-amz-date": stamp}
    names = ";".join(signed)
    canonical = "\n".join((method, path, "", *(f"{name}:{value}" for name, value in signed.items()), "", names, digest))
    scope = f"{day}/{region}/s3/aws4_request"
    to_sign = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    signature = b"AWS4" + secret_key.encode()
    for part in (day, region, "s3", "aws4_request", to_sign):
        signature = hmac.new(signature, part.encode(), hashlib.sha256).digest()
    headers = {"x-amz-content-sha256": digest, "x-amz-date": stamp}
    headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature.hex()}"
    )
    return await ask(port, path, method=method, headers=headers, body=body, timeout_s=15.0)
