"""Recordings: what a model said at each call of one task, and what it must have seen before it said it."""

import hashlib
import logging
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from agents.contracts.base import Count, Edge
from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Sha256

log = logging.getLogger(__name__)

OWN_DIR = Path(__file__).parent / "recordings"
CALL_PATTERN = r"^(planner|executor|reviewer)/\d+\.[a-z0-9][a-z0-9_-]*/\d+/\d+/m\d+$"


class Seen(Edge):
    """One observation, reduced to what a replay is matched on."""

    tool: str
    exit_code: int | None = None
    error_code: ErrorCode | None = None


class Expect(Edge):
    """What a request must show: the tools offered (any order), and the observations since the last call, in order."""

    tools: tuple[str, ...]
    observations: tuple[Seen, ...] = ()


class SpokenCall(Edge):
    """A tool call; `arguments` is the object itself."""

    name: str
    arguments: dict[str, Any]


class RecordedUsage(Edge):
    """Tokens as they were counted when the reply was recorded."""

    prompt_tokens: Count
    completion_tokens: Count


class RecordedReply(Edge):
    """The model's words. Without `usage`, tokens are a quarter of the characters."""

    text: str = ""
    tool_calls: tuple[SpokenCall, ...] = ()
    finish_reason: str | None = None
    usage: RecordedUsage | None = None


class Entry(Edge):
    """One call: its coordinate ``role/revision.step/round/turn/m{k}``, what it must show, what is answered."""

    call: Annotated[str, Field(pattern=CALL_PATTERN)]
    expect: Expect
    reply: RecordedReply
    pace_ms: float | None = None


class Recording(Edge):
    """Every model reply of one task. It is chosen by `name` or by the digest of the task's instruction."""

    version: int = 1
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,99}$")]
    instruction: str
    instruction_sha256: Sha256
    entries: tuple[Entry, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if hashlib.sha256(self.instruction.encode()).hexdigest() != self.instruction_sha256:
            raise ValueError("instruction_sha256 is not the digest of instruction")
        calls = [entry.call for entry in self.entries]
        twice = sorted({call for call in calls if calls.count(call) > 1})
        if twice:
            raise ValueError(f"calls are recorded twice: {', '.join(twice)}")
        return self


class Library:
    """The recordings of some folders, read again when a file changes. A file that cannot be read is named in
    `problems` and left out."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._stamp: tuple[tuple[str, int, int], ...] | None = None
        self._recordings: dict[str, Recording] = {}
        self.problems: list[str] = []

    def recordings(self) -> list[Recording]:
        """All that can be played, by name."""
        self._refresh()
        return [self._recordings[name] for name in sorted(self._recordings)]

    def _refresh(self) -> None:
        files = [path for folder in self._folders for path in sorted(folder.glob("*.json"))]
        stamp = tuple((str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in files)
        if stamp == self._stamp:
            return
        self._recordings, self.problems = {}, []
        for path in files:
            self._load(path)
        self._stamp = stamp

    def _load(self, path: Path) -> None:
        try:
            recording = Recording.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as fault:
            problem = f"{path.name}: {fault}"
        else:
            if recording.name not in self._recordings:
                self._recordings[recording.name] = recording
                return
            problem = f"{path.name}: another file holds a recording named {recording.name!r}"
        self.problems.append(problem)
        log.error("recording left out: %s", problem)
