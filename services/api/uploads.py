"""The body of an upload: raw, or the one file of a multipart form, read as a stream in both cases."""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from agents.contracts.errors import ErrorCode, LonghaulError
from services.api.bodies import limited
from services.api.problems import invalid

MAX_BYTES = 512 << 20
_FRAME_BYTES = 64 << 10
"""What a form may add to its file."""
_MAX_HEADER = 8 << 10

_BINARY = {"type": "string", "format": "binary"}
UPLOAD_DOCS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/octet-stream": {"schema": _BINARY},
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"file": _BINARY}, "required": ["file"]}
            },
        },
    }
}


@dataclass(frozen=True)
class Upload:
    """A file on its way in. `data` raises ``BODY_TOO_LARGE`` and, for a broken form, ``VALIDATION_FAILED``."""

    name: str
    data: AsyncIterator[bytes]


async def open_upload(request: Request, name: str | None) -> Upload:
    """Read as far as the file's name.

    Raises:
        LonghaulError: ``VALIDATION_FAILED`` for a name that is missing or unfit, or a form without a file.
    """
    media_type, options = parse_options_header(request.headers.get("content-type"))
    if media_type == b"application/x-www-form-urlencoded":
        raise LonghaulError(
            ErrorCode.UNSUPPORTED_MEDIA_TYPE,
            "send the bytes as application/octet-stream, or a form as multipart/form-data",
        )
    if media_type != b"multipart/form-data":
        return Upload(_fit(name), limited(request, MAX_BYTES))
    boundary = options.get(b"boundary", b"")
    if not 1 <= len(boundary) <= 200:
        raise invalid("body", "the form's Content-Type has no boundary")
    form = _Form(boundary)
    data = form.read(limited(request, MAX_BYTES + _FRAME_BYTES))
    await anext(data)
    return Upload(_fit(name or form.filename), data)


def _fit(name: str | None) -> str:
    if not name:
        raise invalid("name", "say what the file is called: ?name=… or the form's file name")
    name = name.replace("\\", "/").rsplit("/", 1)[-1]
    if not 0 < len(name) <= 255 or not name.isprintable() or name in (".", ".."):
        raise invalid("name", "must be 1 to 255 printable characters, and not only a path")
    return name


class _Form:
    """A multipart form of which the first part with a file name is read and the others are skipped."""

    def __init__(self, boundary: bytes) -> None:
        self.filename = ""
        self._field, self._value = b"", b""
        self._in_file = self._ended = False
        self._pieces: deque[bytes] = deque()
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_end": self._on_end,
            },
        )
        self._disposition = b""
        self._complete = False

    async def read(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """First an empty piece, once the name is known; then the file's bytes."""
        told = False
        async for chunk in body:
            try:
                self._parser.write(chunk)
            except FormParserError:
                raise invalid("body", "the form is not valid multipart/form-data") from None
            if self.filename and not told:
                told = True
                yield b""
            while self._pieces:
                yield self._pieces.popleft()
        if not told:
            raise invalid("file", "the form holds no file")
        if not self._complete:
            raise invalid("body", "the form ends in the middle")

    def _on_part_begin(self) -> None:
        self._disposition = self._field = self._value = b""

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field = (self._field + data[start:end])[:_MAX_HEADER]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value = (self._value + data[start:end])[:_MAX_HEADER]

    def _on_header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"filename" in options and not self._ended:
            self._in_file = True
            self.filename = options[b"filename"].decode("utf-8", "replace") or "upload"

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._pieces.append(bytes(data[start:end]))

    def _on_part_end(self) -> None:
        self._ended = self._ended or self._in_file
        self._in_file = False

    def _on_end(self) -> None:
        self._complete = True
