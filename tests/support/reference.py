"""Writes docs/reference/events.md from the catalogue: ``python -m tests.support.reference``."""

import typing
from pathlib import Path

from pydantic import BaseModel

from agents.contracts.event import TERMINAL_TYPES, EventData

EVENTS = Path(__file__).parents[2] / "docs" / "reference" / "events.md"
_HEAD = """\
# Events

Everything that happens in a task, in the order of `seq`: from 1, without gaps. Each is
`{task_id, seq, at, agent_id?, step_id?, turn?, data}`; `data.type` is one of the names below. New fields may come, none
goes. Text is an excerpt. The last event of a task is one of %s. Written by `make docs` from agents/contracts/event.py.

| type | meaning | data |
|---|---|---|
"""


def kinds() -> dict[str, type[BaseModel]]:
    """Every event's data class by its `type`."""
    union = typing.get_args(EventData)[0]
    return {kind.model_fields["type"].default: kind for kind in typing.get_args(union)}


def events() -> str:
    """The page."""
    rows = [f"| `{name}` | {_meaning(kind)} | {_fields(kind)} |\n" for name, kind in kinds().items()]
    return _HEAD % ", ".join(f"`{name}`" for name in sorted(TERMINAL_TYPES)) + "".join(rows)


def _meaning(kind: type[BaseModel]) -> str:
    return " ".join((kind.__doc__ or "").split())


def _fields(kind: type[BaseModel]) -> str:
    names = [name + ("" if field.is_required() else "?") for name, field in kind.model_fields.items()]
    return ", ".join(f"`{name}`" for name in names if name.rstrip("?") not in ("version", "type")) or "–"


if __name__ == "__main__":
    EVENTS.write_text(events(), encoding="utf-8")
