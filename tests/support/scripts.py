"""A model that says what a test wrote down: a small real implementation of the Model port."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.model import ModelReply, ModelRequest, Usage
from agents.contracts.tool import ToolCall

Line = ModelReply | LonghaulError | Callable[[ModelRequest], ModelReply | LonghaulError]


def says(
    *calls: tuple[str, Mapping[str, object]], text: str = "", tokens: int = 10, finish: str = "tool_calls"
) -> ModelReply:
    """A reply with these calls."""
    made = tuple(
        ToolCall(id=f"call_{n}", name=name, arguments=json.dumps(args)) for n, (name, args) in enumerate(calls)
    )
    usage = Usage(prompt_tokens=tokens, completion_tokens=tokens // 2)
    return ModelReply(text=text, tool_calls=made, finish_reason=finish, usage=usage, model="scripted", tier="fast")


def place_in(request: ModelRequest) -> str:
    """``round/turn/m{k}`` of a request's key."""
    return "/".join(request.key.split("/")[-3:])


class ScriptedModel:
    """Answers by coordinate (``executor/1.s1/1/2/m1``), by place (``1/2/m1``) or by turn number in order; `asked` holds
    every request. `gate`, where set, holds a call up until it is set."""

    def __init__(self, lines: dict[str, Line] | list[Line]) -> None:
        named = lines if isinstance(lines, dict) else {f"1/{n}/m1": line for n, line in enumerate(lines, start=1)}
        self._lines = named
        self.asked: list[ModelRequest] = []
        self.under_way = 0
        self.gate: asyncio.Event | None = None

    def estimate_cost_micro(self, prompt_tokens: int, completion_tokens: int) -> int:
        """One micro-unit a token."""
        return prompt_tokens + completion_tokens

    async def call(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """The line for this place."""
        self.asked.append(request)
        await on_text("thinking")
        if self.gate is not None:
            self.under_way += 1
            await self.gate.wait()
        line = self._lines.get(request.coordinate) or self._lines.get(place_in(request))
        if line is None:
            raise LonghaulError(ErrorCode.REPLAY_NOT_RECORDED, f"nothing is written for {request.key}")
        if callable(line):
            line = line(request)
        if isinstance(line, LonghaulError):
            raise line
        return line.model_copy(update={"tier": request.tier})

    def say(self, place: str, line: Line) -> None:
        """Write another line, or another one for a place."""
        self._lines[place] = line
