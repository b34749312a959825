"""Requests as a recording keeps them: each call only what is new in it, long texts once. And back again."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agents.contracts.model import (
    AssistantMessage,
    ChatMessage,
    ModelRequest,
    SystemMessage,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from agents.contracts.recorded import RecordedAsk, RecordedMessage
from agents.contracts.tool import ToolResult
from agents.contracts.trajectory import Turn

POOLED_CHARS = 200
"""Texts from this length on are kept once, by digest."""


@dataclass(frozen=True)
class Shown:
    """What a model was shown: its tools as JSON, and the messages."""

    tools: str
    messages: tuple[ChatMessage, ...]

    def layers(self) -> dict[str, str]:
        """Digests by layer: the tools, and the four layers of the prompt."""
        parts = {"tools": [self.tools], "system": [], "long_term": [], "working": [], "scratch": []}
        for index, message in enumerate(self.messages):
            parts[self.layer(index)].append(message.model_dump_json())
        return {layer: digest("\x1e".join(texts)) for layer, texts in parts.items()}

    def layer(self, index: int) -> str:
        """The layer of a message, which follows from its place."""
        if index == len(self.messages) - 1:
            return "scratch"
        return ("system", "long_term")[index] if index < 2 else "working"


def shown(request: ModelRequest) -> Shown:
    """What a request shows."""
    return Shown(tools_json(request.tools), request.messages)


def tools_json(tools: Iterable[ToolSchema]) -> str:
    """Tool schemas as JSON that a person can compare line by line."""
    plain = [{"name": t.name, "description": t.description, "parameters": json.loads(t.parameters_json)} for t in tools]
    return json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False)


def digest(text: str) -> str:
    """sha256, also of half a surrogate pair."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def whole(layers: Mapping[str, str]) -> str:
    """The digest over a request's layers."""
    return digest("".join(f"{name}={layers[name]}\n" for name in sorted(layers)))


def observation(result: ToolResult) -> str:
    """The text of a result as recordings of version 1 mean it. It is part of the format and stays, whatever prompts
    are made of later."""
    head = {"tool": result.tool, "exit_code": result.exit_code, "error_code": result.error_code}
    known = {name: value for name, value in head.items() if value is not None}
    return json.dumps(known, separators=(",", ":"), ensure_ascii=False) + "\n" + result.content


class Packer:
    """Packs the requests of one agent. `texts` is shared by all agents of a task."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts
        self._said: dict[tuple[str, str], str] = {}
        self._seen: dict[str, tuple[str, int]] = {}
        self._before: tuple[ChatMessage, ...] = ()

    def turn(self, turn: Turn) -> None:
        """Take in a turn that later requests may show."""
        key = f"{turn.round}/{turn.turn}"
        if turn.reply is not None:
            self._said.setdefault(_words(turn.reply.text, turn.reply.tool_calls), key)
        for i, result in enumerate(turn.results):
            if result is not None:
                self._seen.setdefault(observation(result), (key, i))

    def new_round(self) -> None:
        """The next request is kept whole."""
        self._before = ()

    def pack(self, request: ModelRequest) -> RecordedAsk:
        """The next request."""
        now = shown(request)
        keep = _common(self._before, now.messages)
        self._before = now.messages
        layers = now.layers()
        return RecordedAsk(
            call=request.coordinate,
            tier=request.tier,
            temperature=request.temperature,
            tool_choice=request.tool_choice,
            sha256=whole(layers),
            layers=layers,
            tools=self._pooled(now.tools),
            keep=keep,
            messages=tuple(self._message(message) for message in now.messages[keep:]),
        )

    def _message(self, message: ChatMessage) -> RecordedMessage:
        if isinstance(message, ToolMessage):
            seen = self._seen.get(message.content)
            if seen is not None:
                return RecordedMessage(role="tool", turn=seen[0], i=seen[1], tool_call_id=message.tool_call_id)
            return self._plain(message).model_copy(update={"tool_call_id": message.tool_call_id})
        if isinstance(message, AssistantMessage):
            said = self._said.get(_words(message.content, message.tool_calls))
            if said is not None:
                return RecordedMessage(role="assistant", turn=said)
            return self._plain(message).model_copy(update={"tool_calls": message.tool_calls})
        return self._plain(message)

    def _plain(self, message: ChatMessage) -> RecordedMessage:
        if len(message.content) < POOLED_CHARS:
            return RecordedMessage(role=message.role, content=message.content)
        return RecordedMessage(role=message.role, text=self._pooled(message.content))

    def _pooled(self, text: str) -> str:
        name = digest(text)[:16]
        self._texts[name] = text
        return name


class Unpacker:
    """Gives the requests of one agent back."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._turns: dict[str, Turn] = {}
        self._before: tuple[ChatMessage, ...] = ()

    def turns(self, turns: Iterable[Turn]) -> None:
        """Take in the turns of the next round."""
        self._turns |= {f"{turn.round}/{turn.turn}": turn for turn in turns}
        self._before = ()

    def unpack(self, ask: RecordedAsk) -> Shown:
        """The next request of the round.

        Raises:
            KeyError, IndexError: the file names what it does not hold.
        """
        new = tuple(self._message(message) for message in ask.messages)
        self._before = self._before[: ask.keep] + new
        return Shown(self._texts[ask.tools], self._before)

    def _message(self, message: RecordedMessage) -> ChatMessage:
        if message.role == "assistant" and message.turn is not None:
            reply = self._turns[message.turn].reply
            if reply is None:
                raise KeyError(message.turn)
            return AssistantMessage(content=reply.text, tool_calls=reply.tool_calls)
        text = self._text(message)
        if message.role == "assistant":
            return AssistantMessage(content=text, tool_calls=message.tool_calls)
        if message.role == "tool":
            return ToolMessage(tool_call_id=message.tool_call_id or "", content=text)
        return SystemMessage(content=text) if message.role == "system" else UserMessage(content=text)

    def _text(self, message: RecordedMessage) -> str:
        if message.turn is not None:
            result = self._turns[message.turn].results[message.i or 0]
            if result is None:
                raise KeyError(message.turn)
            return observation(result)
        return self._texts[message.text] if message.text is not None else message.content or ""


def _words(text: str, calls: Sequence[object]) -> tuple[str, str]:
    return text, repr(calls)


def _common(before: Sequence[ChatMessage], now: Sequence[ChatMessage]) -> int:
    """How many messages two requests begin with alike."""
    pairs = zip(before, now, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(before), len(now)))
