"""What a model is told of a reply of its own that could not be used. It stays in the trajectory, word for word."""

from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Role
from agents.contracts.model import BadReply, ModelReply
from agents.roles import ROLES

_TEXT_CHARS = 2_000
_CALL_CHARS = 600
E = ErrorCode

WORDING: dict[ErrorCode, str] = {
    E.NO_TOOL_CALL: "Text alone does nothing here. Answer with a tool call, through the tool interface: {tools}.",
    E.EMPTY_REPLY: "Answer with a tool call: {tools}.",
    E.REPLY_TRUNCATED: "None of it was used. Answer shorter; write a large file in several parts.",
    E.REPLY_ABORTED: "None of it was used. Answer again.",
    E.UNPARSABLE_CALL: "None of it was run. Write arguments as one JSON object; escape quotes and line ends in it.",
    E.REFUSED: "None of it was used. If a part cannot be done, do the rest and say so with a call: {tools}.",
    E.CONTEXT_TOO_LONG: "The conversation no longer fits the model.",
}
"""For every code of class *model*: what to do about it."""


def bad_reply_text(reply: ModelReply | None) -> str:
    """The unusable reply as plain text, shortened: calls are shown, not repeated as calls."""
    if reply is None:
        return "(no reply arrived)"
    parts = [_short(reply.text.strip(), _TEXT_CHARS)]
    parts += [f"(call of {call.name[:80]}: {_short(call.arguments, _CALL_CHARS)})" for call in reply.tool_calls[:4]]
    return "\n".join(part for part in parts if part) or "(empty reply)"


def correction(role: Role, bad: BadReply) -> str:
    """What is said to it."""
    advice = WORDING.get(bad.code, "None of it was used. Answer again.")
    return f"[{bad.code.value}] {bad.detail} " + advice.format(tools=", ".join(ROLES[role].tools))


def _short(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"
