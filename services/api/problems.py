"""Every fault as one ``application/problem+json`` body (RFC 9457), rendered here and nowhere else."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from agents.contracts.errors import ErrorCode, FaultClass, FieldProblem, LonghaulError, Problem

MEDIA_TYPE = "application/problem+json"
_MAX_FIELDS = 50
_MAX_TEXT = 500

log = logging.getLogger(__name__)


class Refusal(LonghaulError):
    """A fault with more to say than its code: wrong fields, headers of the answer."""

    def __init__(
        self,
        code: ErrorCode,
        detail: str,
        *,
        errors: Iterable[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(code, detail)
        self.errors = list(errors)
        self.headers = dict(headers or {})


class InvalidRequest(Refusal):
    """``VALIDATION_FAILED``: each wrong field with what is wrong with it."""

    def __init__(self, errors: Iterable[FieldProblem]) -> None:
        found = list(errors)
        fields = ", ".join(sorted({e.field for e in found}))
        super().__init__(ErrorCode.VALIDATION_FAILED, _cut(f"the request is not valid: {fields}"), errors=found)


def invalid(field: str, message: str) -> InvalidRequest:
    """The fault of one field."""
    return InvalidRequest([FieldProblem(field=field, message=message)])


def from_validation(errors: Iterable[Mapping[str, Any]], *, drop: int = 0) -> LonghaulError:
    """pydantic's findings as our fault. `drop` is how many leading parts of a location are not the user's."""
    found = list(errors)
    for error in found:
        if error["type"] in ("json_invalid", "json_type"):
            why = error.get("ctx", {}).get("error", "")
            return LonghaulError(ErrorCode.INVALID_JSON, _cut(f"the body is not valid JSON: {why}"))
    return InvalidRequest(_field(error, drop) for error in found[:_MAX_FIELDS])


def respond(
    request: Request,
    code: ErrorCode,
    detail: str,
    *,
    errors: Sequence[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A fault as an answer."""
    rule = code.rule
    problem = Problem(
        type=f"urn:longhaul:problem:{code.value}",
        title=code.value.replace("_", " ").capitalize().replace("json", "JSON"),
        status=rule.status,
        detail=detail,
        instance=_cut(request.scope["path"]),
        code=code,
        retryable=rule.retryable,
        errors=list(errors),
    )
    return Response(problem.model_dump_json(), rule.status, headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every fault that a route, the router or a validation raises."""
    app.add_exception_handler(LonghaulError, _on_fault)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientDisconnect, _on_gone)


async def _on_fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, LonghaulError)
    errors, headers = (error.errors, dict(error.headers)) if isinstance(error, Refusal) else ([], {})
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    elif error.code.rule.status in (429, 503):
        headers["Retry-After"] = "1"
    if error.code is ErrorCode.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = 'Bearer realm="longhaul"'
    if error.code.rule.fault is FaultClass.INFRASTRUCTURE:
        log.warning("a request could not be served", extra={"code": error.code.value, "detail": error.detail})
    return respond(request, error.code, error.detail, errors=errors, headers=headers)


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return await _on_fault(request, from_validation(error.errors(), drop=1))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            return respond(request, ErrorCode.NOT_FOUND, "there is nothing at this path; see /openapi.json")
        case 405:
            detail = f"{request.method} is not possible here; see the Allow header"
            return respond(request, ErrorCode.METHOD_NOT_ALLOWED, detail, headers=error.headers)
        case 400:
            return respond(request, ErrorCode.INVALID_JSON, "the body could not be read")
        case _:
            log.error("an unexpected HTTP fault", extra={"status": error.status_code})
            return respond(request, ErrorCode.INTERNAL, "the request failed")


async def _on_gone(request: Request, error: Exception) -> Response:
    # nobody is there to read this
    return Response(status_code=499)


def _field(error: Mapping[str, Any], drop: int) -> FieldProblem:
    name = ".".join(str(part) for part in error["loc"][drop:]) or "body"
    message = "is not a known field" if error["type"] == "extra_forbidden" else str(error["msg"])
    return FieldProblem(field=_cut(name, 200), message=_cut(message.removeprefix("Value error, ")))


def _cut(text: str, limit: int = _MAX_TEXT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def validation_errors(error: ValidationError) -> list[Mapping[str, Any]]:
    """A model's findings without the values that were sent: those may be large, or secret."""
    return [dict(e) for e in error.errors(include_url=False, include_input=False, include_context=True)]
