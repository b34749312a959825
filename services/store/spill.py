"""Bodies: in the row up to 16 KiB, in S3 by digest above that. What PostgreSQL cannot hold (NUL, halves of a surrogate
pair) is replaced by U+FFFD before it is written anywhere."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from agents.contracts.artifact import BlobRef
from agents.contracts.base import read_stored
from services.store.tables import ROW_CAP_BYTES
from workflows.ports import Objects

M = TypeVar("M", bound=BaseModel)

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


class Body(NamedTuple):
    """A body as its two columns take it, both JSON text: inline, or where it lies."""

    inline: str | None
    blob: str | None


NO_BODY = Body(None, None)


class Spill:
    """Keeps large bodies in S3. Puts come before the transaction that refers to them."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    async def pack(self, tenant_id: str, body: BaseModel | str | None) -> Body:
        """Columns for a body. Raises ``OBJECTS_UNAVAILABLE``."""
        if body is None:
            return NO_BODY
        text = storable(body) if isinstance(body, str) else json_text(body)
        data = text.encode()
        if len(data) <= ROW_CAP_BYTES:
            return Body(text, None)
        ref = await self._objects.put(tenant_id, data)
        return Body(None, ref.model_dump_json())

    async def text(self, tenant_id: str, inline: Any, blob: Any) -> str | None:
        """A body's JSON from its columns (as the driver decoded them); None where there is none."""
        if inline is not None:
            return json.dumps(inline)
        if blob is None:
            return None
        return (await self._objects.get(tenant_id, BlobRef.model_validate(blob))).decode()

    async def model(self, tenant_id: str, kind: type[M], inline: Any, blob: Any) -> M | None:
        """A body as its model."""
        if inline is not None:
            return read_stored(kind, inline)
        text = await self.text(tenant_id, None, blob)
        return read_stored(kind, text) if text is not None else None

    async def models(
        self, tenant_id: str, kind: type[M], rows: Sequence[Mapping[str, Any]], column: str
    ) -> list[M | None]:
        """The same body of many rows; the large ones are fetched side by side."""
        blob = f"{column}_blob"
        return list(await asyncio.gather(*(self.model(tenant_id, kind, row[column], row[blob]) for row in rows)))


def json_text(value: Any) -> str:
    """JSON that PostgreSQL takes. `None` fields are left out."""
    try:
        return storable(to_json(value, exclude_none=True).decode())
    except PydanticSerializationError:  # half of a surrogate pair somewhere
        return storable(json.dumps(_whole(json.loads(json.dumps(value, default=_plain)))))


def storable(text: str) -> str:
    """JSON text without escaped NULs."""
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


def line(text: str) -> str:
    """Text for a text column."""
    return text.replace("\x00", "�").encode("utf-8", "replace").decode()


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_none=True)
    return str(value)


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return {key: _whole(item) for key, item in value.items()} if isinstance(value, dict) else value
