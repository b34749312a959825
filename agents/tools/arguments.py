"""The arguments of a call: from the model's text to a JSON object, and from the object to the tool's types."""

import json
import re
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from agents.contracts.tool import ToolCall

_RAW_CONTROL = re.compile(r"[\x00-\x1f]")
_ERRORS_SHOWN = 8
Object = dict[str, Any]


class NotAnObject(ValueError):
    """The text is not a JSON object; the message says why."""


def _no_constant(name: str) -> NoReturn:
    raise NotAnObject(f"{name} is not JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> Object:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotAnObject("a key is given twice")
    return found


_DECODER = json.JSONDecoder(strict=False, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
"""Raw control characters inside strings are accepted (models write real line ends into code); nothing else is."""


def parse_object(raw: str) -> Object:
    """The object a model wrote; blank text is ``{}``.

    Raises:
        NotAnObject: no JSON, no object, a repeated key, NaN, or half a surrogate pair (which no store can keep).
    """
    if not raw.strip():
        return {}
    try:
        value = _DECODER.decode(raw)
        if "\\u" in raw or not raw.isascii():
            json.dumps(value, ensure_ascii=False).encode()
    except NotAnObject:
        raise
    except UnicodeEncodeError:
        raise NotAnObject("a string holds half a surrogate pair") from None
    except (ValueError, RecursionError) as fault:
        raise NotAnObject(str(fault)) from None
    if not isinstance(value, dict):
        raise NotAnObject(f"a JSON object is needed, not {type(value).__name__}")
    return value


def wire_arguments(raw: str) -> str:
    """The arguments as they go back to an engine: as the model wrote them wherever that is strict JSON, since chat
    templates parse them again."""
    if not raw.strip():
        return "{}"
    return json.dumps(parse_object(raw), ensure_ascii=False) if _RAW_CONTROL.search(raw) else raw


def without_nulls(value: Any) -> Any:
    """The value without keys that are null: models write null for "not given"."""
    if isinstance(value, dict):
        return {key: without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [without_nulls(child) for child in value]
    return value


def typed(model: type[BaseModel], value: Object) -> BaseModel | str:
    """The arguments in their types, or what is wrong with them in words."""
    try:
        return model.model_validate(without_nulls(value))
    except ValidationError as fault:
        lines = [_line(tuple(map(str, error["loc"])), error["msg"]) for error in fault.errors(include_url=False)]
        more = [f"- and {len(lines) - _ERRORS_SHOWN} more"] if len(lines) > _ERRORS_SHOWN else []
        return "\n".join(["The arguments are wrong:", *lines[:_ERRORS_SHOWN], *more])


def _line(path: tuple[str, ...], message: str) -> str:
    where = ".".join(path)[:200]
    return f"- {where}: {message[:300]}" if where else f"- {message[:300]}"


def unique_ids(calls: tuple[ToolCall, ...], seen: set[str]) -> tuple[ToolCall, ...]:
    """The calls with ids that are not empty and not in `seen`, which grows by them. Same input, same ids."""
    fixed = []
    for call in calls:
        fresh = call.id
        n = len(seen)
        while not fresh or fresh in seen:
            n += 1
            fresh = f"{call.id or 'call'}_{n}"
        seen.add(fresh)
        fixed.append(call if fresh == call.id else call.model_copy(update={"id": fresh}))
    return tuple(fixed)
