"""Playing a recording against today's code: where it would ask or decide otherwise than it did."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from agents.context.render import Prompts
from agents.contracts.base import excerpt
from agents.contracts.ids import Role
from agents.contracts.model import AssistantMessage, ModelRequest, ToolMessage
from agents.contracts.recorded import RecordedAgent, RecordedAsk, RecordedTask
from agents.contracts.recording import Entry, Expect, Recording, expectation
from agents.contracts.tool import ToolResult
from workflows.replay.differences import AgentReplay, Difference, Differs, Kind, Replay, compare
from workflows.replay.play import Part, parts, play
from workflows.replay.transcript import Unpacker, shown


async def against(recording: Recording, task: RecordedTask, prompts: Prompts) -> Replay:
    """Play every agent of a recorded task with these prompts.

    Raises:
        KeyError, IndexError, ValueError: the file contradicts itself.
    """
    entries = {entry.call: entry for entry in recording.entries}
    agents = [await _agent(agent, task, entries, prompts) for agent in task.agents]
    return Replay(
        name=recording.name,
        task_id=task.id,
        status=task.status.value,
        same=not any(agent.differences for agent in agents),
        calls=sum(agent.calls for agent in agents),
        agents=tuple(agents),
        notes=(*task.notes, *_briefless(task)),
    )


async def _agent(agent: RecordedAgent, task: RecordedTask, entries: dict[str, Entry], prompts: Prompts) -> AgentReplay:
    comparing = _Comparing(Unpacker(task.texts), entries)
    place, stopped = agent.place, None
    try:
        await play(agent, prompts, comparing.round)
    except Differs as differs:
        comparing.found.append(differs.difference)
        stopped = differs.difference.call
    return AgentReplay(
        agent=f"{place.role.value}/{place.revision}.{place.step}",
        calls=comparing.calls,
        differences=tuple(comparing.found),
        stopped_at=stopped,
    )


@dataclass
class _Comparing:
    """Implements `workflows.replay.ports.Watch`: compares what is asked and refused with the recording."""

    unpacker: Unpacker
    entries: dict[str, Entry]
    found: list[Difference] = field(default_factory=list)
    calls: int = 0
    _asks: Iterator[RecordedAsk] = field(default_factory=lambda: iter(()))
    _refused: dict[str, str] = field(default_factory=dict)
    _gated: frozenset[str] = frozenset()
    _digests: dict[str, str] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def round(self, part: Part) -> "_Comparing":
        """The same watch, turned to the next round."""
        self.unpacker.turns(part.round.turns)
        self._asks = iter(part.round.asks)
        self._refused = {key: code.value for key, code in part.round.refused.items()}
        self._gated = frozenset(part.round.gated)
        self._digests = part.digests()
        return self

    def asked(self, request: ModelRequest) -> None:
        """Compare how it is asked and what is shown. Raises `Differs` for the former."""
        ask = next(self._asks, None)
        if ask is None:
            self._sent(request, shown_too=False)
            return
        self.calls += 1
        then = f"tier {ask.tier}, temperature {ask.temperature:g}, tool choice {ask.tool_choice}"
        now = f"tier {request.tier}, temperature {request.temperature:g}, tool choice {request.tool_choice}"
        if ask.call != request.coordinate:
            raise Differs(request.coordinate, "another call is made", ask.call, request.coordinate)
        if then != now:
            raise Differs(ask.call, "it is asked otherwise", then, now)
        difference = compare(ask.call, self.unpacker.unpack(ask), shown(request), self._seen)
        if difference is not None:
            self.found.append(difference)
        else:
            self._sent(request, shown_too=True)
        self._expected(request)

    def checked(self, call: str, key: str, refusal: ToolResult | None) -> None:
        """Compare whether a call is accepted. Raises `Differs` where not as then."""
        then, now = self._refused.get(key), refusal.error_code if refusal else None
        if then == (now.value if now else None):
            return
        what = f"call {key.rpartition('/')[2]} is {'refused' if refusal else 'accepted'}"
        raise Differs(
            call, what, then or "accepted", f"{now.value}: {refusal.content}" if refusal and now else "accepted"
        )

    def gated(self, call: str, keys: tuple[str, ...]) -> None:
        """Compare which calls wait for a person. Raises `Differs` where not as then."""
        turn = call.split("/")[3]
        then = sorted(key for key in self._gated if key.startswith(turn + "/"))
        if then != sorted(keys):
            what = "the tool calls about which a person is asked differ"
            raise Differs(call, what, _calls(then), _calls(sorted(keys)))

    def _sent(self, request: ModelRequest, *, shown_too: bool) -> None:
        """Whether it is what the model was sent, where only the ledger's digest can tell. The notes say why."""
        then, now = self._digests.get(request.coordinate), request.request_sha256
        if then is None or now is None or then == now:
            return
        known = "shows what the code that made it asks" if shown_too else "has only its digest"
        self._differs(request, "request", f"the request differs from what was sent; the file {known}", then, now)

    def _differs(self, request: ModelRequest, kind: Kind, what: str, then: str, now: str) -> None:
        new = Difference(call=request.coordinate, kind=kind, what=what, then=excerpt(then), now=excerpt(now))
        self.found.append(new)

    def _expected(self, request: ModelRequest) -> None:
        """Whether the replay engine would answer this request from this recording."""
        entry = self.entries.get(request.coordinate)
        if entry is None:
            return
        now, then = _expectation(request), expectation(entry.expect.tools, ())
        then = then.model_copy(update={"observations": entry.expect.observations})
        if now != then:
            a, b = (one.model_dump_json(exclude_none=True) for one in (then, now))
            what = "the replay engine would not answer this call from this file"
            self._differs(request, "REPLAY_MISMATCH", what, then=a, now=b)


def _calls(keys: list[str]) -> str:
    return "calls " + ", ".join(key.rpartition("/")[2] for key in keys) if keys else "none"


def _expectation(request: ModelRequest) -> Expect:
    messages = request.messages
    calling = [n for n, m in enumerate(messages) if isinstance(m, AssistantMessage) and m.tool_calls]
    news = messages[calling[-1] + 1 :] if calling else messages
    return expectation((t.name for t in request.tools), [m.content for m in news if isinstance(m, ToolMessage)])


def _briefless(task: RecordedTask) -> Iterator[str]:
    for agent in task.agents:
        for part in parts(agent):
            if part.brief is None:
                place, role = agent.place, agent.place.role
                why = "only its last review's brief was kept" if role is Role.REVIEWER else "it has no brief"
                yield f"{role.value}/{place.revision}.{place.step} round {part.round.round} is not compared: {why}"
