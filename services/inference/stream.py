"""The bytes of an answer, bounded: server-sent events line by line, or one JSON body."""

import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import ClientResponse

from agents.contracts.errors import ErrorCode, LonghaulError
from services.inference.failures import excerpt
from services.inference.reply import aborted

DONE = "[DONE]"


async def chunks(response: ClientResponse, max_bytes: int) -> AsyncIterator[Any]:
    """The JSON objects of an answer with status 200: each `data:` of a stream, or the one body of an engine that does
    not stream. Ends only where the engine said that it was done.

    Raises:
        LonghaulError: ``REPLY_ABORTED`` (cut, endless, not JSON), ``ENGINE_UNAVAILABLE`` (a web page, an empty body).
    """
    lines = _lines(response, max_bytes)
    if response.content_type != "text/event-stream":
        text = "\n".join([line async for line in lines])
        if not _looks_like_stream(text):
            yield _whole(text)
            return
        lines = _again(text)
    async for line in lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == DONE:
            return
        if data:
            yield _piece(data)
    raise aborted("the reply broke off: the connection ended before the engine said that it was done")


async def _lines(response: ClientResponse, max_bytes: int) -> AsyncIterator[str]:
    """Lines without their end. Line by line by hand, because the reader's own limit is far below one large chunk."""
    held: list[bytes] = []
    total = 0
    async for block in response.content.iter_any():
        total += len(block)
        if total > max_bytes:
            raise aborted(f"the reply is longer than {max_bytes} bytes; the rest was not read")
        if b"\n" not in block:
            held.append(block)
            continue
        *whole, rest = b"".join([*held, block]).split(b"\n")
        held = [rest]
        for line in whole:
            yield line.rstrip(b"\r").decode("utf-8", "replace")
    if any(held):
        yield b"".join(held).decode("utf-8", "replace")


async def _again(text: str) -> AsyncIterator[str]:
    for line in text.split("\n"):
        yield line


def _looks_like_stream(text: str) -> bool:
    return text.lstrip().startswith(("data:", ":", "event:"))


def _piece(data: str) -> Any:
    try:
        return json.loads(data, strict=False)
    except ValueError:
        raise aborted(f"a piece of the reply is not JSON: {excerpt(data)}") from None


def _whole(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except ValueError:
        said = excerpt(text) or "an empty body"
        detail = f"the model's address answered 200 but not as a model does (a proxy's page?): {said}"
        raise LonghaulError(ErrorCode.ENGINE_UNAVAILABLE, detail) from None
