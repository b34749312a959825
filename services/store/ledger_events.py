"""The events that ledger transactions tell of, and the JSON rows that go with them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from agents.contracts import event as ev
from agents.contracts.base import excerpt
from agents.contracts.errors import ErrorCode, ErrorInfo
from agents.contracts.event import EventData
from agents.contracts.message import PERSON, name_of
from agents.contracts.trajectory import TurnInputs
from services.store.spill import Body, Spill, json_text
from workflows.records import Answer, Held, Intent, Outgoing, Ran, Results, RoundEnd


class Told(NamedTuple):
    """An event's data and the turn it belongs to."""

    data: EventData
    turn: int | None


class Packed(NamedTuple):
    """Results ready for a statement: the bodies lie where they belong."""

    done: Results
    rows: str
    artifacts: str


async def pack_results(spill: Spill, held: Held, done: Results) -> Packed:
    """Put large results into S3 and write the rows of all."""
    bodies = [await spill.pack(held.ref.tenant_id, ran.result) for ran in done.ran]
    rows = [_row(held.call_key(done.turn, ran.i), body) for ran, body in zip(done.ran, bodies, strict=True)]
    kept = [
        {"key": f"{held.call_key(done.turn, ran.i)}/{artifact.path}", **artifact.model_dump(mode="json")}
        for ran in done.ran
        for artifact in ran.artifacts
    ]
    return Packed(done, "[" + ",".join(rows) + "]", json_text(kept))


def _row(key: str, body: Body) -> str:
    return f'{{"key": {json_text(key)}, "result": {body.inline or "null"}, "blob": {body.blob or "null"}}}'


def sent_event(held: Held, message: Outgoing) -> EventData:
    """An agent's message is stored."""
    return ev.MessageSent(
        message_id=message.id,
        sender=name_of(held.place),
        to=message.recipient,
        text=excerpt(message.text),
        kind=message.kind,
        reply_to=message.reply_to,
        expires_s=message.expires_s,
    )


def of_results(held: Held, done: Results) -> Iterator[Told]:
    """What happened through each call, how it ended, and the turn's end where it has everything."""
    for ran in done.ran:
        for data in ran.events:
            yield Told(data, done.turn)
        for message in ran.messages:
            yield Told(sent_event(held, message), done.turn)
        yield Told(_ended(held.call_key(done.turn, ran.i), ran), done.turn)
    if done.completes:
        yield Told(ev.TurnCompleted(round=held.ref.round, calls=done.calls), done.turn)


def _ended(key: str, ran: Ran) -> EventData:
    result = ran.result
    if result.error_code is ErrorCode.EXEC_OUTCOME_UNKNOWN:
        return ev.ToolUnknown(key=key, tool=result.tool)
    if result.error_code is not None:
        return ev.ToolFailed(key=key, tool=result.tool, code=result.error_code, content=excerpt(result.content))
    return ev.ToolCompleted(
        key=key,
        tool=result.tool,
        exit_code=result.exit_code,
        content=excerpt(result.content),
        duration_ms=result.duration_ms,
    )


def of_begin(held: Held, intent: Intent, inputs: TurnInputs | None, known: bool) -> Iterator[Told]:
    """A turn's start with the messages that entered it, and the call about to be made; nothing for a repeated one."""
    key = held.model_key(intent.turn, intent.k)
    if inputs is not None:
        yield Told(ev.TurnStarted(round=held.ref.round), intent.turn)
        for mail in inputs.mail:
            yield Told(ev.MessageDelivered(message_id=mail.id), intent.turn)
            if mail.kind == "steer" or mail.sender == PERSON:
                yield Told(ev.SteerApplied(message_id=mail.id), intent.turn)
    if known:
        return
    if intent.fell_back is not None:
        tier, code = intent.fell_back
        before = held.model_key(intent.turn, intent.k - 1)
        yield Told(ev.ModelFallback(key=before, from_tier=tier, to_tier=intent.tier, code=code), intent.turn)
    yield Told(ev.ModelCalled(key=key, tier=intent.tier, k=intent.k), intent.turn)


def of_answer(held: Held, answer: Answer) -> Iterator[Told]:
    """A reply with its calls, or what was wrong with it."""
    key, reply = held.model_key(answer.turn, answer.k), answer.reply
    if answer.bad is not None:
        yield Told(
            ev.ModelFailed(key=key, error=ErrorInfo(code=answer.bad.code, detail=answer.bad.detail)), answer.turn
        )
    elif reply is not None:
        completed = ev.ModelCompleted(
            key=key,
            model=reply.model,
            text=excerpt(reply.text),
            calls=tuple(call.name for call in reply.tool_calls),
            usage=reply.usage,
            latency_ms=reply.latency_ms,
        )
        yield Told(completed, answer.turn)
    for call in answer.calls:
        called = ev.ToolCalled(key=held.call_key(answer.turn, call.i), tool=call.tool, arguments=call.arguments)
        yield Told(called, answer.turn)
    if answer.failed is not None:
        yield Told(ev.TurnFailed(round=held.ref.round, error=answer.failed), answer.turn)


def of_end(held: Held, end: RoundEnd) -> Iterator[Told]:
    """A round's end."""
    finished = ev.AgentFinished(
        role=held.place.role,
        step=held.place.step,
        round=held.ref.round,
        reason=end.reason.value,
        error=end.error,
    )
    yield Told(finished, None)


def rows(told: Sequence[Told]) -> str:
    """Events as the statements take them; `n` counts from 0."""
    return json_text([{"n": n, "type": t.data.type, "turn": t.turn, "data": t.data} for n, t in enumerate(told)])


def call_rows(held: Held, answer: Answer) -> str:
    """The intents of a reply's calls."""
    calls: list[dict[str, Any]] = [
        {"key": held.call_key(answer.turn, call.i), "i": call.i, "tool": call.tool} for call in answer.calls
    ]
    return json_text(calls)
