"""The working layer: turns as chat messages. What is written here is never written differently again."""

from agents.context.mail import render_mail
from agents.context.wording import bad_reply_text, correction
from agents.contracts.ids import Role
from agents.contracts.model import AssistantMessage, BadReply, ChatMessage, ModelReply, ToolMessage, UserMessage
from agents.contracts.tool import ToolCall, ToolResult, render_observation
from agents.contracts.trajectory import Attempt, Turn
from agents.tools.arguments import unique_ids, wire_arguments


def opening(role: Role, turn: Turn, new_round: bool) -> list[ChatMessage]:
    """What a turn has before its usable reply: a line for a new round, its mail, and the replies that were no use."""
    texts = [f"Round {turn.round} begins."] if new_round else []
    if turn.inputs.mail:
        texts.append(render_mail(turn.inputs.mail))
    messages: list[ChatMessage] = [UserMessage(content="\n\n".join(texts))] if texts else []
    for attempt in turn.attempts:
        if attempt.bad is not None:
            messages += _unusable(role, attempt, attempt.bad)
    return messages


def _unusable(role: Role, attempt: Attempt, bad: BadReply) -> list[ChatMessage]:
    return [AssistantMessage(content=bad_reply_text(attempt.reply)), UserMessage(content=correction(role, bad))]


def closing(turn: Turn, seen_ids: set[str]) -> list[ChatMessage]:
    """The usable reply with a result for each of its calls, or a line for a turn that was given up.

    Raises:
        ValueError: the turn is open, or has not one result a call; a prompt made of it would be refused.
    """
    if turn.failed is not None:
        return [UserMessage(content=f"[{turn.failed.code.value}] That turn was given up. Go on with a simpler call.")]
    reply = turn.reply
    if reply is None:
        raise ValueError(f"turn {turn.round}/{turn.turn} has no usable reply")
    results = [result for result in turn.results if result is not None]
    if not reply.tool_calls or len(results) != len(reply.tool_calls) or len(turn.results) != len(results):
        raise ValueError(f"turn {turn.round}/{turn.turn} has {len(results)} results for {len(reply.tool_calls)} calls")
    return _answered(reply, results, seen_ids)


def _answered(reply: ModelReply, results: list[ToolResult], seen_ids: set[str]) -> list[ChatMessage]:
    calls = tuple(_wire(call) for call in unique_ids(reply.tool_calls, seen_ids))
    said = AssistantMessage(content=reply.text, tool_calls=calls)
    pairs = zip(calls, results, strict=True)
    return [said, *(ToolMessage(tool_call_id=call.id, content=render_observation(result)) for call, result in pairs)]


def _wire(call: ToolCall) -> ToolCall:
    arguments = wire_arguments(call.arguments)
    return call if arguments is call.arguments else call.model_copy(update={"arguments": arguments})
