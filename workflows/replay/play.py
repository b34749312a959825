"""Plays recorded agents through the turn loop that workers run."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from agents.context.render import Prompts
from agents.contracts.ids import Place, Role, coordinate
from agents.contracts.recorded import RecordedAgent, RecordedRound
from agents.contracts.run import AgentRef
from agents.contracts.trajectory import Brief, Turn
from workflows.replay.ports import (
    Nowhere,
    RecordingEnds,
    ReplayBench,
    ReplayLedger,
    ReplayModel,
    Script,
    StillClock,
    Watch,
)
from workflows.turns import BurstRules, Bursts, Ports

RULES = BurstRules(turns=sys.maxsize, own_s=float("inf"), store_patience_s=0.0, engine_patience_s=0.0)
"""A round is one burst, unless something ends it that an agent waits for."""


@dataclass(frozen=True)
class Part:
    """A round with what it goes on from."""

    place: Place
    round: RecordedRound
    brief: Brief | None
    before: tuple[Turn, ...]

    def digests(self) -> dict[str, str]:
        """By call, the digest of the request that was sent, where it is known."""
        return {
            coordinate(self.place, self.round.round, turn.turn, attempt.k): attempt.request_sha256
            for turn in self.round.turns
            for attempt in turn.attempts
            if attempt.request_sha256 is not None
        }


def parts(agent: RecordedAgent) -> Iterator[Part]:
    """The rounds of an agent. A reviewer begins each anew; the brief of others is that of their first round."""
    before: tuple[Turn, ...] = ()
    brief: Brief | None = None
    for one in agent.rounds:
        brief = one.brief if agent.place.role is Role.REVIEWER else one.brief or brief
        yield Part(agent.place, one, brief, before)
        if agent.place.role is not Role.REVIEWER:
            before += tuple(turn for turn in one.turns if turn.complete)


async def play(agent: RecordedAgent, prompts: Prompts, watch: Callable[[Part], Watch]) -> None:
    """Play every round that has a brief, each before the eyes of its own watch.

    Raises:
        Differs: a decision of the loop, or of a watch; the rest of the agent is not played.
    """
    for part in parts(agent):
        if part.brief is None:
            continue
        ref = AgentRef(tenant_id=part.brief.tenant_id, place=agent.place, round=part.round.round)
        script = Script(ref, part.round, part.brief, list(part.before), watch(part))
        try:
            await _bursts(script, prompts)
        except RecordingEnds:
            continue


async def _bursts(script: Script, prompts: Prompts) -> None:
    nowhere = Nowhere()
    bench = ReplayBench(script)
    ports = Ports(ReplayLedger(script), ReplayModel(script), nowhere, nowhere, bench, StillClock(), nowhere)
    bursts, drain = Bursts(ports, prompts, RULES), Future[None]()
    while True:
        played = script.begun
        end = await bursts.run(script.ref, drain)
        if end.reason.final or script.begun == played:
            return
