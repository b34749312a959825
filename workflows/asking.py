"""Asking a model once: the request of an open turn, its streamed text, a few quick retries while the engine is away."""

import hashlib
import json

from agents.context.render import Rendered
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.ids import coordinate
from agents.contracts.model import Delta, ModelReply, ModelRequest
from agents.contracts.trajectory import Brief, Turn
from agents.policy.budget import MIN_REPLY_TOKENS, affordable_reply
from agents.policy.retry import Ask
from workflows.clock import Clock
from workflows.interrupts import Interrupts
from workflows.ports import Live, Model
from workflows.records import Held

DRAIN_GRACE_S = 4.0
"""What a worker that shuts down still gives a model call; after that it is asked again by the next attempt."""

FIRST_DELAY_S = 0.25


def request(held: Held, brief: Brief, turn: Turn, rendered: Rendered, how: Ask, max_tokens: int) -> ModelRequest:
    """The k-th call of a turn. All of it follows from what is stored, so the same key always has the same request."""
    # its parts are valid already; validating a long history again every turn would cost more each turn
    k = len(turn.attempts) + 1
    room = affordable_reply(rendered.prompt_tokens_estimate, max_tokens, turn.inputs.tokens_left)
    return ModelRequest.model_construct(
        key=held.model_key(turn.turn, k),
        coordinate=coordinate(held.place, held.ref.round, turn.turn, k),
        tenant_id=held.ref.tenant_id,
        task_id=held.place.task_id,
        agent_id=held.agent_id,
        fence=held.fence,
        tier=how.tier,
        instruction_sha256=brief.instruction_sha256,
        recording=brief.recording,
        messages=rendered.messages,
        tools=rendered.tools,
        tool_choice=how.tool_choice,
        max_tokens=room or min(MIN_REPLY_TOKENS, max_tokens),
        temperature=how.temperature,
        request_sha256=_digest(rendered, how),
    )


def _digest(rendered: Rendered, how: Ask) -> str:
    """Over the prompt's own digest, which grows with it: a long history costs nothing here."""
    asked = [rendered.sha256, how.tier, how.temperature, how.tool_choice]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


class Asking:
    """Calls the model; the text is passed on as it comes."""

    def __init__(self, model: Model, live: Live, clock: Clock, interrupts: Interrupts) -> None:
        self._model = model
        self._live = live
        self._clock = clock
        self._interrupts = interrupts

    async def reply(self, ask: ModelRequest, patience_s: float) -> ModelReply:
        """The reply. An engine that is away is tried again for `patience_s`.

        Raises:
            LonghaulError: as the Model port says.
            Interrupted: the call was given up because of a cancel or a shutdown.
        """
        give_up = self._clock.monotonic() + patience_s
        delay = FIRST_DELAY_S
        while True:
            try:
                return await self._interrupts.race(self._once(ask), DRAIN_GRACE_S)
            except LonghaulError as fault:
                delay = max(delay, fault.retry_after_s or 0.0)
                if fault.code is not ErrorCode.ENGINE_UNAVAILABLE or self._clock.monotonic() + delay > give_up:
                    raise
            await self._interrupts.pause(delay)
            self._interrupts.check()
            delay *= 2

    async def _once(self, ask: ModelRequest) -> ModelReply:
        async def on_text(text: str) -> None:
            delta = Delta(
                task_id=ask.task_id,
                agent_id=ask.agent_id,
                key=ask.key,
                fence=ask.fence,
                text=text,
                at=self._clock.now(),
            )
            await self._live.delta(ask.tenant_id, delta)

        return await self._model.call(ask, on_text)
