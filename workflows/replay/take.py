"""Making a recording: what the ledger has of a task, and what today's code asks at each of its calls."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agents.context.render import Prompts
from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Role, coordinate
from agents.contracts.model import ModelReply, ModelRequest
from agents.contracts.recorded import RecordedAgent, RecordedAsk, RecordedTask
from agents.contracts.recording import Entry, RecordedReply, RecordedUsage, Recording, SpokenCall, expectation
from agents.contracts.tool import ToolCall, ToolResult
from agents.contracts.trajectory import Turn
from agents.policy.redact import redact, redact_all
from agents.roles import ROLES
from agents.tools.arguments import NotAnObject, parse_object
from workflows.replay.differences import Differs
from workflows.replay.play import Part, parts, play
from workflows.replay.transcript import Packer, observation

TENANT = "recorded"
"""Stands for the tenant, which is nobody's business."""


async def take(instruction: str, task: RecordedTask, prompts: Prompts) -> Recording:
    """The recording of a task whose agents have their briefs and turns. Secrets are taken out first; so the requests
    in it are those that its own texts give."""
    clean, n = redact(instruction)
    digest = hashlib.sha256(clean.encode()).hexdigest()
    texts: dict[str, str] = {}
    redacted = _redacted(task, digest, n)
    taken = [await _agent(agent, prompts, texts) for agent in redacted.agents]
    notes = (*redacted.notes, *(note for _, notes in taken for note in notes))
    agents = tuple(agent for agent, _ in taken)
    return Recording(
        name=task.id.lower(),
        instruction=clean,
        instruction_sha256=digest,
        entries=tuple(entry for agent in agents for entry in entries(agent)),
        task=redacted.model_copy(update={"agents": agents, "texts": texts, "notes": notes}),
    )


def _redacted(task: RecordedTask, instruction_sha256: str, already: int) -> RecordedTask:
    plain, n = redact_all(task.model_dump(mode="json"))
    for agent in plain["agents"]:
        for brief in (one["brief"] for one in agent["rounds"] if one["brief"]):
            brief |= {"tenant_id": TENANT, "instruction_sha256": instruction_sha256}
        for attempt in (a for one in agent["rounds"] for turn in one["turns"] for a in turn["attempts"]):
            if attempt["reply"]:  # tokens are for training, and would tell what was redacted
                attempt["reply"] |= {"prompt_token_ids": None, "completion_token_ids": None, "logprobs": None}
            if n + already:  # it is of the texts before, and would tell what was redacted
                attempt["request_sha256"] = None
        for result in (r for one in agent["rounds"] for turn in one["turns"] for r in turn["results"] if r):
            result["full"] = None  # its digest and length are those of the text before
    return RecordedTask.model_validate(plain | {"redactions": n + already})


async def _agent(agent: RecordedAgent, prompts: Prompts, texts: dict[str, str]) -> tuple[RecordedAgent, list[str]]:
    packer, notings, notes = Packer(texts), list[_Noting](), list[str]()

    def watch(part: Part) -> _Noting:
        notings.append(_Noting(packer, part))
        return notings[-1]

    try:
        await play(agent, prompts, watch)
    except Differs as differs:
        d = differs.difference
        notes.append(
            f"{d.call}: the code that recorded this decides otherwise than the code that ran it ({d.what}: {d.then} "
            f"then, {d.now} now); of the calls behind it only the replies are kept"
        )
    by_round = {noting.round: noting for noting in notings}
    rounds = []
    for one in agent.rounds:
        noting = by_round.get(one.round)
        new = {"asks": tuple(noting.asks), "refused": noting.refused, "gated": tuple(noting.waiting)} if noting else {}
        rounds.append(one.model_copy(update=new))
    others = [call for noting in notings for call in noting.others]
    if others:
        notes.append(
            f"{others[0]}: the code that recorded this asks in other words than the code that ran it ({len(others)}"
            " calls of this agent); the requests here are its own, only their digests are of those that were sent"
        )
    return agent.model_copy(update={"rounds": tuple(rounds)}), notes


@dataclass
class _Noting:
    """Implements `workflows.replay.ports.Watch`: writes down what is asked and what is refused."""

    packer: Packer
    part: Part
    asks: list[RecordedAsk] = field(default_factory=list)
    refused: dict[str, ErrorCode] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Calls that were asked in other words than this code's."""

    def __post_init__(self) -> None:
        self.round = self.part.round.round
        self.packer.new_round()
        for turn in self.part.round.turns:
            self.packer.turn(turn)

    def asked(self, request: ModelRequest) -> None:
        """Keep it, and whether it is what was sent then."""
        self.asks.append(self.packer.pack(request))
        sent = self.part.digests().get(request.coordinate)
        if sent is not None and sent != request.request_sha256:
            self.others.append(request.coordinate)

    def checked(self, call: str, key: str, refusal: ToolResult | None) -> None:
        """Keep a refusal."""
        if refusal is not None and refusal.error_code is not None:
            self.refused[key] = refusal.error_code

    def gated(self, call: str, keys: tuple[str, ...]) -> None:
        """Keep what waited."""
        self.waiting += keys


def entries(agent: RecordedAgent) -> Iterator[Entry]:
    """What the replay engine plays of an agent."""
    for part in parts(agent):
        done = list(part.before) if agent.place.role is not Role.REVIEWER else []
        for turn in part.round.turns:
            expect = expectation(ROLES[agent.place.role].tools, _news(done))
            for k, reply in _replies(turn):
                call = coordinate(agent.place, part.round.round, turn.turn, k)
                yield Entry(call=call, expect=expect, reply=_spoken(reply))
            done.append(turn)


def _news(done: Sequence[Turn]) -> list[str]:
    """The observations that the next request shows: those of the last turn with a usable reply."""
    last = next((turn for turn in reversed(done) if turn.reply is not None and turn.failed is None), None)
    return [observation(result) for result in last.results if result is not None] if last else []


def _replies(turn: Turn) -> Iterator[tuple[int, ModelReply]]:
    """The replies by k; a call that brought none is answered with the next, so that it is not asked in vain again."""
    for n, attempt in enumerate(turn.attempts):
        reply = next((later.reply for later in turn.attempts[n:] if later.reply is not None), None)
        if reply is not None:
            yield attempt.k, reply


def _spoken(reply: ModelReply) -> RecordedReply:
    used = RecordedUsage(prompt_tokens=reply.usage.prompt_tokens, completion_tokens=reply.usage.completion_tokens)
    return RecordedReply(
        text=reply.text,
        tool_calls=tuple(_call(call) for call in reply.tool_calls),
        finish_reason=reply.finish_reason,
        usage=used,
    )


def _call(call: ToolCall) -> SpokenCall:
    try:
        return SpokenCall(name=call.name, arguments=parse_object(call.arguments))
    except NotAnObject:
        return SpokenCall(name=call.name, raw=call.arguments)
