"""What an engine's refusal means: one table from HTTP to our codes."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from agents.contracts.errors import ErrorCode, LonghaulError
from services.inference.body import QUIRKS
from services.inference.endpoints import Endpoint

_EXCERPT = 400
_TOO_LONG = re.compile(
    r"context_length_exceeded|context (length|window|size)|maximum (context|input) length|prompt (is )?too long"
    r"|input (is )?too long|too many (input )?tokens|max_model_len|exceeds? (the )?(available|model'?s?) context",
    re.IGNORECASE,
)
_REPLAY = {c.value: c for c in (ErrorCode.REPLAY_MISMATCH, ErrorCode.REPLAY_NOT_RECORDED)}


def whole(text: str) -> str:
    """The text as UTF-8 can hold it: a pair of surrogates whose halves came apart is joined, a half alone is U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def excerpt(text: str) -> str:
    """A text cut to what a message can hold, on one line."""
    flat = " ".join(whole(text).split())
    return flat if len(flat) <= _EXCERPT else flat[:_EXCERPT] + "…"


def is_too_long(text: str) -> bool:
    """Whether an engine's words say that the prompt does not fit."""
    return _TOO_LONG.search(text) is not None


def error_of(text: str) -> dict[str, Any]:
    """The `error` object of a JSON body, in any of the shapes engines use; `message` is there if anything is."""
    try:
        body = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(body, dict):
        return {}
    error = body.get("error", body)
    return error if isinstance(error, dict) else {"message": str(error)}


def refused_field(status: int, text: str) -> str | None:
    """The field of ours that a 400 or 422 complains of, where there is a plainer way to ask.

    Only what names the fault is searched: engines repeat the whole request in the rest.
    """
    if status not in (400, 422) or is_too_long(text):
        return None
    error = error_of(text)
    details = error.get("detail")
    places = [str(d.get("loc")) for d in details if isinstance(d, dict)] if isinstance(details, list) else [details]
    named = " ".join(str(v) for v in (error.get("param"), str(error.get("message"))[:_EXCERPT], *places))
    return next((q for q in QUIRKS if q in named), None)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds until the engine wants to be asked again; None where it does not say."""
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - now).total_seconds())
    except (ValueError, TypeError):
        return None


def from_status(endpoint: Endpoint, status: int, headers: Mapping[str, str], text: str, now: datetime) -> LonghaulError:
    """The fault that an answer other than 200 stands for. The key is never in it."""
    said = excerpt(endpoint.hide(str(error_of(text).get("message") or text)))
    where = f"the model at {endpoint.shown}"
    code = str(error_of(text).get("code"))
    if endpoint.replay and code in _REPLAY:
        return LonghaulError(_REPLAY[code], endpoint.hide(str(error_of(text).get("message"))))
    if status in (400, 413, 422) and (is_too_long(text) or status == 413):
        return LonghaulError(ErrorCode.CONTEXT_TOO_LONG, f"{where} says that the prompt does not fit: {said}")
    if status in (408, 425, 429) or status >= 500:
        wait = retry_after_s(headers, now)
        return LonghaulError(ErrorCode.ENGINE_UNAVAILABLE, f"{where} answered {status}: {said}", retry_after_s=wait)
    return LonghaulError(ErrorCode.ENGINE_REFUSED, f"{where} answered {status}; {_advice(endpoint, status, said)}")


def _advice(endpoint: Endpoint, status: int, said: str) -> str:
    if endpoint.replay and status in (401, 403):
        return "the replay engine did not take our token: start the stack again"
    if status in (401, 403):
        return "it did not accept the key: set LONGHAUL_MODEL_API_KEY to one that it accepts and start the stack again"
    if status == 404:
        return (
            f"either it has no model {endpoint.model!r} (see {endpoint.shown}/models; set LONGHAUL_MODEL_FULL and "
            f"LONGHAUL_MODEL_FAST) or LONGHAUL_MODEL_BASE_URL is not the address that ends in /v1. It said: {said}"
        )
    if 300 <= status < 400:
        return "it redirects, which is not followed: set LONGHAUL_MODEL_BASE_URL to the address it points to"
    return f"it said: {said}"
