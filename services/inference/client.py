"""`OpenAiModel`: the Model port over an OpenAI-compatible endpoint."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import aiohttp

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.model import (
    CALL_HEADER,
    INSTRUCTION_HEADER,
    KEY_HEADER,
    RECORDING_HEADER,
    ModelReply,
    ModelRequest,
    Usage,
)
from services.inference.body import QUIRKS, encode, prompt_chars
from services.inference.endpoints import Endpoint, endpoint_for, proxy_for
from services.inference.failures import excerpt, from_status, refused_field, whole
from services.inference.pacing import Coalescer
from services.inference.reply import ReplyParts, aborted
from services.inference.stream import chunks
from services.settings import Settings

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
KEEPALIVE_S = 4.0
"""Below the 5 s after which common engines close an idle connection, or reused connections fail at random."""
MAX_REPLY_BYTES = 64 << 20
MAX_REFUSAL_BYTES = 1 << 20
CHARS_PER_TOKEN = 4

OnText = Callable[[str], Awaitable[None]]


class OpenAiModel:
    """Asks the user's endpoint (tiers fast, full, auto) or the replay engine (tier replay). One session for all calls.

    An endpoint that refuses a field with a 400 is asked again without it, and what it took is remembered.
    """

    def __init__(self, settings: Settings, *, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        self._settings = settings
        self._max_bytes = max_reply_bytes
        self._http: aiohttp.ClientSession | None = None
        self._quirks: dict[Endpoint, frozenset[str]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls under way fail."""
        if self._http:
            await self._http.close()
            self._http = None

    def estimate_cost_micro(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Micro-units, rounded up; the prices of the settings are per million tokens."""
        s = self._settings
        total = prompt_tokens * s.model_prompt_price_micro + completion_tokens * s.model_completion_price_micro
        return -(-total // 1_000_000)

    async def call(self, request: ModelRequest, on_text: OnText) -> ModelReply:
        """As the port says."""
        endpoint = endpoint_for(self._settings, request.tier)
        if request.prompt_token_ids is not None:
            raise LonghaulError(ErrorCode.ENGINE_REFUSED, "a chat endpoint takes no token ids; use chat mode here")
        started = time.monotonic()
        said = Coalescer(on_text)
        parts = ReplyParts()
        try:
            async with asyncio.timeout(self._settings.model_timeout_s):
                engine = await self._ask(endpoint, request, parts, said)
        except (aiohttp.ClientError, TimeoutError, OSError) as fault:
            raise self._broken(endpoint, parts, fault) from fault
        await said.flush()
        return self._reply(request, endpoint, parts, engine, int((time.monotonic() - started) * 1000))

    async def _ask(self, endpoint: Endpoint, request: ModelRequest, parts: ReplyParts, said: Coalescer) -> str | None:
        """Ask until the endpoint takes the request's form; fills `parts`, answers the engine's id."""
        quirks = self._quirks.get(endpoint, frozenset())
        headers, proxy = _headers(endpoint, request), proxy_for(endpoint)
        for _ in range(len(QUIRKS) + 1):
            body = encode(endpoint, request, quirks)
            async with self._session().post(
                endpoint.chat_url, data=body, headers=headers, allow_redirects=False, proxy=proxy
            ) as response:
                if response.status == 200:
                    self._quirks[endpoint] = quirks
                    async for chunk in chunks(response, self._max_bytes):
                        await said.push(parts.add(chunk))
                    return response.headers.get("X-Engine-Id")
                text = await _refusal(response)
                field = refused_field(response.status, text)
                if endpoint.replay or field is None or field in quirks:
                    raise from_status(endpoint, response.status, response.headers, text, datetime.now(UTC))
                quirks |= {field}
                log.warning("the model at %s does not take %s; asking again without it", endpoint.shown, field)
        raise LonghaulError(
            ErrorCode.ENGINE_REFUSED, f"the model at {endpoint.shown} refuses every form of the request"
        )

    def _session(self) -> aiohttp.ClientSession:
        """Made at the first call, because it belongs to the running loop."""
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            )
        return self._http

    def _broken(self, endpoint: Endpoint, parts: ReplyParts, fault: Exception) -> LonghaulError:
        """Before the first piece nothing was said and waiting helps; after it the reply is lost."""
        why = excerpt(endpoint.hide(str(fault))) or type(fault).__name__
        if isinstance(fault, aiohttp.InvalidURL):
            return LonghaulError(
                ErrorCode.ENGINE_REFUSED, f"{endpoint.shown} is no address: set LONGHAUL_MODEL_BASE_URL"
            )
        if isinstance(fault, TimeoutError) and not isinstance(fault, aiohttp.ClientError):
            why = f"no whole reply within {self._settings.model_timeout_s:g} s"
        if parts.heard:
            return aborted(f"the reply of the model at {endpoint.shown} broke off: {why}")
        return LonghaulError(ErrorCode.ENGINE_UNAVAILABLE, f"the model at {endpoint.shown} did not answer: {why}")

    def _reply(
        self, request: ModelRequest, endpoint: Endpoint, parts: ReplyParts, engine: str | None, latency_ms: int
    ) -> ModelReply:
        calls = parts.tool_calls(request.key)
        return ModelReply(
            text=whole(parts.text),
            tool_calls=calls,
            finish_reason=parts.finish_reason or ("tool_calls" if calls else "stop"),
            usage=self._usage(request, endpoint, parts),
            model=parts.model or endpoint.model,
            tier=request.tier,
            latency_ms=latency_ms,
            engine=engine,
            prompt_token_ids=parts.prompt_token_ids,
            completion_token_ids=tuple(parts.token_ids) or None,
            logprobs=tuple(parts.logprobs) or None,
        )

    def _usage(self, request: ModelRequest, endpoint: Endpoint, parts: ReplyParts) -> Usage:
        """As the engine counted, else a quarter of the characters. A replayed call costs nothing."""
        told = parts.usage or {}
        details = told.get("prompt_tokens_details")
        cached = _count(
            details.get("cached_tokens") if isinstance(details, dict) else told.get("prompt_cache_hit_tokens")
        )
        prompt, completion = _count(told.get("prompt_tokens")), _count(told.get("completion_tokens"))
        if not prompt and not completion:
            log.warning("the model at %s reports no usage; it is estimated from the text", endpoint.shown)
            written = len(parts.text) + sum(len(c.name) + len(c.arguments) for c in parts.calls)
            prompt, completion = -(-prompt_chars(request) // CHARS_PER_TOKEN), -(-written // CHARS_PER_TOKEN)
        cost = 0 if endpoint.replay else self.estimate_cost_micro(prompt, completion)
        return Usage(prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion, cost_micro=cost)


async def _refusal(response: aiohttp.ClientResponse) -> str:
    """What an engine says beside an error status, however many pieces it comes in."""
    said = bytearray()
    while len(said) < MAX_REFUSAL_BYTES and (piece := await response.content.read(MAX_REFUSAL_BYTES - len(said))):
        said += piece
    return said.decode("utf-8", "replace")


def _headers(endpoint: Endpoint, request: ModelRequest) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream, application/json",
        CALL_HEADER: request.coordinate,
        INSTRUCTION_HEADER: request.instruction_sha256,
        KEY_HEADER: request.key,
    }
    if request.recording:
        headers[RECORDING_HEADER] = request.recording
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    return headers


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
