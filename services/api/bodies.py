"""Bodies: read up to a limit, whatever their headers claim, and turned into a contract once."""

from collections.abc import AsyncIterator
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from agents.contracts.errors import ErrorCode, FieldProblem, LonghaulError
from services.api.problems import InvalidRequest, from_validation, validation_errors

JSON_LIMIT_BYTES = 1 << 20

M = TypeVar("M", bound=BaseModel)


async def read_json(request: Request, model: type[M]) -> M:
    """The body as a model.

    Raises:
        LonghaulError: ``UNSUPPORTED_MEDIA_TYPE``, ``BODY_TOO_LARGE``, ``INVALID_JSON``, ``VALIDATION_FAILED``.
    """
    media_type, _, parameters = request.headers.get("content-type", "").partition(";")
    if media_type.strip().lower() != "application/json":
        raise LonghaulError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "send JSON, with Content-Type: application/json")
    charset = parameters.lower().replace(" ", "").replace('"', "")
    if "charset=" in charset and "charset=utf-8" not in charset:
        raise LonghaulError(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "send JSON as UTF-8")
    raw = b"".join([chunk async for chunk in limited(request, JSON_LIMIT_BYTES)])
    try:
        body = model.model_validate_json(raw)
    except ValidationError as error:
        raise from_validation(validation_errors(error)) from None
    refuse_nul(body.model_dump())
    return body


async def limited(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The body's pieces as they come.

    Raises:
        LonghaulError: ``BODY_TOO_LARGE`` as soon as more than `limit` bytes are announced or have come.
    """
    fault = LonghaulError(ErrorCode.BODY_TOO_LARGE, f"the body must be at most {limit} bytes")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > limit:
        raise fault
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
        if total > limit:
            raise fault
        yield chunk


def refuse_nul(value: dict[str, Any]) -> None:
    """Refuse U+0000 anywhere: the database cannot keep it, and nothing a user means needs it.

    Raises:
        InvalidRequest: naming the fields.
    """
    if found := [FieldProblem(field=name, message="must not contain U+0000") for name in _with_nul(value, "")]:
        raise InvalidRequest(found)


def _with_nul(value: object, name: str) -> list[str]:
    match value:
        case str():
            return [name] if "\x00" in value else []
        case dict():
            inner = [_with_nul(v, f"{name}.{k}".lstrip(".")) for k, v in value.items()]
            keys = [name for k in value if "\x00" in str(k)]
            return keys + [n for names in inner for n in names]
        case list() | tuple():
            return [n for i, v in enumerate(value) for n in _with_nul(v, f"{name}.{i}")]
        case _:
            return []
