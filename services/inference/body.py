"""A model call in the words of the OpenAI chat API, and what an endpoint turned out not to take."""

import json
from functools import lru_cache
from typing import Any

from agents.contracts.model import AssistantMessage, ChatMessage, ModelRequest, ToolMessage, ToolSchema
from services.inference.endpoints import Endpoint

QUIRKS = ("tool_choice", "stream_options", "max_tokens", "temperature")
"""Fields that some engines refuse, in the order in which their names are looked for in a refusal."""


def encode(endpoint: Endpoint, request: ModelRequest, quirks: frozenset[str]) -> bytes:
    """The request's body. `quirks` are the fields that this endpoint refused before; each has a plainer substitute:
    tool_choice → auto, max_tokens → max_completion_tokens, the others are left out."""
    body: dict[str, Any] = {
        "model": endpoint.model,
        "messages": [_message(m) for m in request.messages],
        "stream": True,
        "max_completion_tokens" if "max_tokens" in quirks else "max_tokens": request.max_tokens,
    }
    if "stream_options" not in quirks:
        body["stream_options"] = {"include_usage": True}
    if "temperature" not in quirks:
        body["temperature"] = request.temperature
    if request.tools:
        body["tools"] = [_tool(t) for t in request.tools]
        body["tool_choice"] = "auto" if "tool_choice" in quirks else request.tool_choice
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def prompt_chars(request: ModelRequest) -> int:
    """The length of what the model reads; the estimate of its tokens where an engine does not count."""
    return sum(_chars(m) for m in request.messages) + sum(
        len(t.name) + len(t.description) + len(t.parameters_json) for t in request.tools
    )


def _chars(message: ChatMessage) -> int:
    calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
    return len(message.content) + sum(len(c.name) + len(c.arguments) for c in calls)


def _message(message: ChatMessage) -> dict[str, Any]:
    if isinstance(message, AssistantMessage) and message.tool_calls:
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
        return {"role": "assistant", "content": message.content or None, "tool_calls": calls}
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    return {"role": message.role, "content": message.content}


def _tool(tool: ToolSchema) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": _parameters(tool.parameters_json)}
    return {"type": "function", "function": function}


@lru_cache(maxsize=256)
def _parameters(text: str) -> Any:
    return json.loads(text)
