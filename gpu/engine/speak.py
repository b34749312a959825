"""Replies in the OpenAI chat format: whole, or as the chunks of a stream."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from agents.contracts.recording import RecordedReply, SpokenCall

CHARS_PER_TOKEN = 4
"""Recorded words were not tokenised: usage is simulated as a quarter of the characters, prompt and reply alike."""

_WORD = re.compile(r"\S+\s*|\s+")
Json = dict[str, Any]


def usage(body: Mapping[str, Any], reply: RecordedReply) -> Json:
    """Tokens of a call: as recorded, else simulated from the lengths."""
    if reply.usage:
        prompt, completion = reply.usage.prompt_tokens, reply.usage.completion_tokens
    else:
        read = len(json.dumps(body.get("tools") or [])) + sum(_length(m) for m in body.get("messages") or ())
        written = len(reply.text) + sum(len(c.name) + len(_arguments(c)) for c in reply.tool_calls)
        prompt, completion = -(-read // CHARS_PER_TOKEN), -(-written // CHARS_PER_TOKEN)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def completion(model: str, call: str, reply: RecordedReply, used: Json) -> Json:
    """The whole answer."""
    message: Json = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": _id(call, i), "type": "function", "function": {"name": c.name, "arguments": _arguments(c)}}
            for i, c in enumerate(reply.tool_calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": finish_reason(reply)}
    return {**_head(model, call, "chat.completion"), "choices": [choice], "usage": used}


def chunks(model: str, call: str, reply: RecordedReply) -> Iterator[Json]:
    """The answer word by word, then its tool calls (a head, then the arguments in pieces), then the end."""
    head = _head(model, call, "chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> Json:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for word in _WORD.findall(reply.text):
        yield chunk({"content": word})
    for i, spoken in enumerate(reply.tool_calls):
        function = {"name": spoken.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": i, "id": _id(call, i), "type": "function", "function": function}]})
        for piece in _pieces(_arguments(spoken)):
            yield chunk({"tool_calls": [{"index": i, "function": {"arguments": piece}}]})
    yield chunk({}, finish_reason(reply))


def usage_chunk(model: str, call: str, used: Json) -> Json:
    """The last chunk of a stream that asked for usage."""
    return {**_head(model, call, "chat.completion.chunk"), "choices": [], "usage": used}


def finish_reason(reply: RecordedReply) -> str:
    """As recorded, else what an engine would say."""
    return reply.finish_reason or ("tool_calls" if reply.tool_calls else "stop")


def _head(model: str, call: str, kind: str) -> Json:
    return {"id": "chatcmpl-" + _digest(call), "object": kind, "created": 0, "model": model}


def _id(call: str, i: int) -> str:
    """The same call always gets the same id, so a repeated answer is the same answer."""
    return "call_" + _digest(f"{call}/c{i}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _arguments(spoken: SpokenCall) -> str:
    return json.dumps(spoken.arguments, ensure_ascii=False) if spoken.raw is None else spoken.raw


def _pieces(text: str, size: int = 200) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _length(message: Mapping[str, Any]) -> int:
    return len(str(message.get("content") or "")) + len(json.dumps(message.get("tool_calls") or ""))
