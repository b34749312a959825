"""The scripted team: a recording for the replay engine that plans one step, runs commands that leave marks, reviews."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.contracts.approval import ToolPolicy
from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Role
from agents.contracts.recording import Entry, Expect, RecordedReply, Recording, Seen, SpokenCall
from agents.contracts.task import TaskSpec
from agents.roles import ROLES
from services.client import Client

MARKS = "marks.txt"
MIDDLE = "middle"
"""A file that the long command makes in its middle."""
LONG_BEFORE_S, LONG_AFTER_S = 5, 3
"""How long the long command runs before its middle and behind it."""
SLOW = "unhurried"
"""The word that a slow reply repeats while it streams."""
_NOISE_BYTES = 20_000
"""Printed by each short command: more than a model is shown, so the whole output goes into the object store."""
_SLOW_WORDS, _SLOW_MS = 30, 100.0


@dataclass(frozen=True)
class Move:
    """One turn of the executor: the call that it makes, and what it must then see; `more` are further calls of the same
    reply, which must come to the same."""

    call: SpokenCall
    sees: Seen
    text: str = "Next."
    pace_ms: float = 0.0
    more: tuple[SpokenCall, ...] = ()

    @property
    def seen(self) -> tuple[Seen, ...]:
        """What the next reply is asked with."""
        return (self.sees,) * (1 + len(self.more))


def short(mark: str, then_s: float = 0.0) -> Move:
    """A command of a moment, or of `then_s` seconds, that leaves one mark and prints a lot."""
    command = f"echo {mark} >> {MARKS}; head -c {_NOISE_BYTES} /dev/zero | tr '\\0' x"
    command += f"; sleep {then_s}" if then_s else ""
    return _shell(command, Seen(tool="shell", exit_code=0))


def long(mark: str, *, killed: bool = False) -> Move:
    """A command of eight seconds that leaves a mark at its start and one at its end, unless it is `killed`."""
    steps = (
        f"export LH_MARK={mark}",
        f"echo {mark}-begin >> {MARKS}",
        f"sleep {LONG_BEFORE_S}",
        f"touch {MIDDLE}",
        f"sleep {LONG_AFTER_S}",
        f"echo {mark}-end >> {MARKS}",
    )
    end = Seen(tool="shell", error_code=ErrorCode.EXEC_KILLED) if killed else Seen(tool="shell", exit_code=0)
    return _shell("; ".join(steps), end)


def slow(mark: str) -> Move:
    """As `short`, after a reply that streams for seconds."""
    move = short(mark)
    return Move(move.call, move.sees, " ".join([SLOW] * _SLOW_WORDS), _SLOW_MS)


def batch(*marks: str) -> Move:
    """One reply with a command for each mark."""
    first, *more = (short(mark) for mark in marks)
    return Move(first.call, first.sees, more=tuple(move.call for move in more))


def _shell(command: str, sees: Seen) -> Move:
    return Move(SpokenCall(name="shell", arguments={"command": command}), sees)


_CLOSING = (
    Move(SpokenCall(name="read_file", arguments={"path": MARKS}), Seen(tool="read_file")),
    Move(SpokenCall(name="save_artifact", arguments={"path": MARKS}), Seen(tool="save_artifact")),
)


@dataclass(frozen=True)
class Play:
    """A whole task. `marks` is what the file must hold at the end, in this order; `tools` is what the task says of
    tools."""

    name: str
    moves: tuple[Move, ...]
    marks: tuple[str, ...]
    tools: Mapping[str, ToolPolicy] = field(default_factory=dict)

    width = 1

    @property
    def calls(self) -> tuple[str, ...]:
        """Every reply that is asked for."""
        return tuple(entry.call for entry in self.entries())

    def spec(self, client: Client) -> TaskSpec:
        """The task."""
        return TaskSpec(
            instruction=self.instruction,
            tier="replay",
            recording=self.name,
            checks=[self.check],
            tools=dict(self.tools),
        )

    @property
    def instruction(self) -> str:
        """What the task is submitted with."""
        return f"Leave the marks of {self.name} in {MARKS}."

    @property
    def check(self) -> str:
        """The task's own check: the file holds exactly the marks."""
        return f"printf '%s\\n' {' '.join(self.marks)} | cmp - {MARKS}"

    def record(self, folder: Path) -> None:
        """Write the recording; the engine sees it at once."""
        digest = hashlib.sha256(self.instruction.encode()).hexdigest()
        recording = Recording(
            name=self.name, instruction=self.instruction, instruction_sha256=digest, entries=tuple(self.entries())
        )
        path = folder / f"{self.name}.json"
        partial = path.with_suffix(".partial")
        partial.write_text(recording.model_dump_json(indent=1, exclude_none=True), encoding="utf-8")
        partial.replace(path)

    def entries(self) -> list[Entry]:
        """Every reply of the team."""
        moves = (*self.moves, *_CLOSING)
        spoken = [*(((m.call, *m.more), m.text, m.pace_ms) for m in moves), ((_finish(),), "Done.", 0.0)]
        seen: list[tuple[Seen, ...]] = [(), *(m.seen for m in moves)]
        executor = [
            _entry(Role.EXECUTOR, "work", n, *calls, seen=before, text=text, pace_ms=pace)
            for n, ((calls, text, pace), before) in enumerate(zip(spoken, seen, strict=True), 1)
        ]
        look = SpokenCall(name="read_file", arguments={"path": MARKS})
        return [
            _entry(Role.PLANNER, "plan", 1, _plan()),
            *executor,
            _entry(Role.REVIEWER, "work", 1, look),
            _entry(Role.REVIEWER, "work", 2, _approve(), seen=(Seen(tool="read_file"),)),
        ]


def _entry(
    role: Role,
    step: str,
    turn: int,
    *calls: SpokenCall,
    seen: Sequence[Seen] = (),
    text: str = "Next.",
    pace_ms: float = 0.0,
) -> Entry:
    return Entry(
        call=f"{role.value}/1.{step}/1/{turn}/m1",
        expect=Expect(tools=ROLES[role].tools, observations=tuple(seen)),
        reply=RecordedReply(text=text, tool_calls=calls),
        pace_ms=pace_ms,
    )


def _plan() -> SpokenCall:
    step: dict[str, Any] = {
        "id": "work",
        "title": "Leave the marks",
        "instructions": "Run the commands, one after the other.",
        "acceptance": ["every mark is there once"],
    }
    return SpokenCall(name="submit_plan", arguments={"steps": [step]})


def _finish() -> SpokenCall:
    return SpokenCall(name="finish_step", arguments={"summary": "the marks are there", "artifacts": [MARKS]})


def _approve() -> SpokenCall:
    arguments = {"verdict": "approve", "findings": [], "evidence": ["read the marks"]}
    return SpokenCall(name="submit_review", arguments=arguments)
