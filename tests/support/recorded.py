"""Recorded tasks made without a stack: real bursts on ports in memory, then a recording of what they left."""

from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime

from agents.contracts.ids import Role
from agents.contracts.recorded import RecordedAgent, RecordedRound, RecordedTask
from agents.contracts.recording import Recording
from agents.contracts.run import AgentRef, BurstReason
from agents.contracts.task import Limits, StopReason, TaskStatus
from agents.contracts.trajectory import Brief, Turn
from tests.support.memory import BRIEF, InMemoryBench, InMemoryLedger, NoRunner, NothingLost, SilentLive, StillClock
from tests.support.scripts import Line, ScriptedModel
from workflows.replay.against import against
from workflows.replay.differences import Replay
from workflows.replay.take import take
from workflows.turns import BurstRules, Bursts, Ports

PROMPTS = dict.fromkeys(Role, "You are one of a team.\nBe brief.")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Keeping(InMemoryLedger):
    """Remembers the outcome of the round too."""

    outcome: str | None = None

    async def end(self, held, key, done, end):  # type: ignore[no-untyped-def]
        """The end."""
        ended = await super().end(held, key, done, end)
        self.outcome = end.outcome if ended else self.outcome
        return ended


async def lived(lines: list[Line] | dict[str, Line], brief: Brief = BRIEF) -> RecordedAgent:
    """An agent after one round with a model that says these lines."""
    ledger = Keeping(brief)
    ports = Ports(ledger, ScriptedModel(lines), NoRunner(), SilentLive(), InMemoryBench(), StillClock(), NothingLost())
    rules = BurstRules(engine_patience_s=0.0, store_patience_s=0.0)
    ref = AgentRef(tenant_id=brief.tenant_id, place=brief.place, round=1)
    end = await Bursts(ports, PROMPTS, rules).run(ref, Future())
    reason = end.reason if end.reason.final else None
    return RecordedAgent(place=brief.place, rounds=(of(ledger.turns, reason, brief, ledger.outcome),))


def of(turns: Sequence[Turn], reason: BurstReason | None, brief: Brief, outcome: str | None) -> RecordedRound:
    """A round as the ledger has it."""
    return RecordedRound(round=1, brief=brief, reason=reason, turns=tuple(turns), outcome=outcome)


def task_of(*agents: RecordedAgent) -> RecordedTask:
    """A completed task of these agents."""
    return RecordedTask(
        id="task_1",
        status=TaskStatus.COMPLETED,
        stop_reason=StopReason.COMPLETED,
        created_at=NOW,
        recorded_at=NOW,
        tier="auto",
        limits=Limits(),
        agents=agents,
    )


async def recorded(*agents: RecordedAgent, instruction: str = BRIEF.goal) -> Recording:
    """The recording of a task of these agents."""
    return await take(instruction, task_of(*agents), PROMPTS)


async def replayed(recording: Recording, prompts: dict[Role, str] | None = None) -> Replay:
    """What today's code makes of it."""
    assert recording.task is not None
    return await against(recording, recording.task, prompts or PROMPTS)
