"""The prompt of a turn, as a pure function of the brief and the trajectory: same inputs, same bytes.

Four layers, most stable first: system, long_term, working, scratch. The first three are append-only, so the prompt of
turn n without its scratch is the head of the prompt of turn n+1 and an engine's prefix cache serves it.
"""

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.context.long_term import render_long_term
from agents.context.scratch import render_scratch
from agents.context.trajectory import closing, opening
from agents.contracts.ids import Role
from agents.contracts.model import (
    AssistantMessage,
    ChatMessage,
    SystemMessage,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from agents.contracts.trajectory import Brief, Turn
from agents.policy import stuck
from agents.tools.registry import schemas

Prompts = Mapping[Role, str]
"""The text of each role's prompt file, read by a main."""

CHARS_PER_TOKEN = 4
"""English and code are near four characters a token; other scripts have fewer, so this is a guess to reserve by."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt. `prompt_tokens_estimate` is all characters, tool schemas included, over four, rounded up; `layers` are
    characters; `sha256` is over everything a model would see."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSchema, ...]
    prompt_tokens_estimate: int
    layers: dict[str, int]
    sha256: str


class Renderer:
    """The prompt of an agent, kept as it grows: a turn costs what is new in it, however long the history.

    `push` each complete turn in order, then `open` the turn that is to be asked, as often as needed.
    """

    def __init__(self, prompts: Prompts, brief: Brief) -> None:
        self._role = brief.place.role
        self._tools = schemas(self._role)
        self._digest = hashlib.sha256()
        self._messages: list[ChatMessage] = []
        self._layers = {"system": 0, "long_term": 0, "working": 0}
        self._ids: set[str] = set()
        self._round: int | None = None
        self._recent: deque[Turn] = deque(maxlen=stuck.FARTHEST)
        for tool in self._tools:
            text = "\x1f".join((tool.name, tool.description, tool.parameters_json))
            self._digest.update(text.encode())
            self._layers["system"] += len(text)
        self._append("system", [SystemMessage(content=prompts[self._role])])
        self._append("long_term", [UserMessage(content=render_long_term(brief))])

    @property
    def chars(self) -> int:
        """The length of what every later prompt begins with."""
        return sum(self._layers.values())

    def push(self, turn: Turn) -> None:
        """Take in a complete turn.

        Raises:
            ValueError: it is not complete; every call must have its result.
        """
        messages = self._opening(turn) + closing(turn, self._ids)
        self._append("working", messages)
        self._round = turn.round
        self._recent.append(turn)

    def open(self, turn: Turn) -> Rendered:
        """The prompt that asks for `turn`: its mail, what was wrong with its replies so far, and the scratch."""
        nudge = None if turn.inputs.mail else stuck.nudge(tuple(self._recent))
        scratch = UserMessage(content=render_scratch(self._role, turn.inputs, nudge))
        tail = self._opening(turn)
        digest = self._digest.copy()
        for message in (*tail, scratch):
            digest.update(_bytes(message))
        layers = self._layers | {
            "working": self._layers["working"] + sum(map(_chars, tail)),
            "scratch": _chars(scratch),
        }
        return Rendered(
            messages=(*self._messages, *tail, scratch),
            tools=self._tools,
            prompt_tokens_estimate=-(-sum(layers.values()) // CHARS_PER_TOKEN),
            layers=layers,
            sha256=digest.hexdigest(),
        )

    def _opening(self, turn: Turn) -> list[ChatMessage]:
        return opening(self._role, turn, new_round=self._round is not None and turn.round != self._round)

    def _append(self, layer: str, messages: Sequence[ChatMessage]) -> None:
        for message in messages:
            self._messages.append(message)
            self._digest.update(_bytes(message))
            self._layers[layer] += _chars(message)


def render(prompts: Prompts, brief: Brief, turns: Sequence[Turn]) -> Rendered:
    """The prompt for the last of `turns`, which is open; all before it are complete."""
    renderer = Renderer(prompts, brief)
    for turn in turns[:-1]:
        renderer.push(turn)
    return renderer.open(turns[-1])


def _chars(message: ChatMessage) -> int:
    if isinstance(message, AssistantMessage) and message.tool_calls:
        calls = message.tool_calls
        return len(message.content) + sum(len(c.id) + len(c.name) + len(c.arguments) for c in calls)
    return len(message.content)


def _bytes(message: ChatMessage) -> bytes:
    """What the digest takes in of a message: its role, its content, its calls or the call it answers, unmistakably
    apart."""
    parts = [message.role, message.content]
    if isinstance(message, ToolMessage):
        parts.append(message.tool_call_id)
    if isinstance(message, AssistantMessage):
        parts += [part for call in message.tool_calls for part in (call.id, call.name, call.arguments)]
    return "\x1e".join([*parts, "\x1d"]).encode("utf-8", "surrogatepass")
