"""A recording's file as somebody gave it to us."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agents.contracts.base import read_stored
from agents.contracts.recorded import RecordedTask
from agents.contracts.recording import VERSION, Recording

MAX_BYTES = 128 << 20


class Unreadable(Exception):
    """This is no recording that we can play; the message says what it is."""


def read(path: Path) -> tuple[Recording, RecordedTask]:
    """The recording, and the task in it.

    Raises:
        Unreadable: not a recording, a part of one, one of a newer version, or one without its task.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise Unreadable(f"{path} has {size >> 20} MiB; a recording has at most {MAX_BYTES >> 20}")
    data = path.read_bytes()
    plain = _object(path, data)
    version = plain.get("version")
    if not isinstance(version, int) or not {"name", "instruction", "entries"} <= plain.keys():
        raise Unreadable(f"{path} is JSON, but no recording of Longhaul: `longhaul record TASK` makes one")
    if version > VERSION:
        raise Unreadable(
            f"{path} is a recording of version {version}; this Longhaul reads up to {VERSION}: use a newer one"
        )
    if plain.get("task") is None:
        raise Unreadable(
            f"{path} holds replies only: the replay tier can play it, but it lacks what a comparison needs (briefs, "
            "results, requests). `longhaul record TASK` makes one that has them"
        )
    return _recording(path, data)


def _object(path: Path, data: bytes) -> dict[str, Any]:
    try:
        plain = json.loads(data)
    except UnicodeDecodeError:
        raise Unreadable(f"{path} is no recording: it is not text") from None
    except (ValueError, RecursionError) as fault:
        if data.lstrip().startswith(b"{"):
            raise Unreadable(f"{path} is damaged or only a part of a recording: {fault}") from None
        raise Unreadable(f"{path} is no recording: it is not JSON ({fault})") from None
    if not isinstance(plain, dict):
        raise Unreadable(f"{path} is JSON, but no recording of Longhaul: `longhaul record TASK` makes one")
    return plain


def _recording(path: Path, data: bytes) -> tuple[Recording, RecordedTask]:
    try:
        recording = read_stored(Recording, data)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Unreadable(f"{path} is a damaged recording: {where}: {first['msg']}") from None
    assert recording.task is not None  # looked at before
    return recording, recording.task
