"""The replay engine's HTTP face: OpenAI's chat completions over recorded replies."""

import asyncio
import hmac
import json
import logging
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from agents.contracts.errors import LonghaulError
from agents.contracts.model import CALL_HEADER, RECORDING_HEADER
from agents.contracts.recording import Entry
from gpu.engine import generate, match, speak
from gpu.engine.recording import Library

log = logging.getLogger(__name__)

MODEL = "replay"
MAX_BODY_BYTES = 64 << 20
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
Handler = Any


class ReplayEngine:
    """Answers from a `Library`, at `pace_ms` a word."""

    def __init__(self, library: Library, token: str, pace_ms: float = 0.0) -> None:
        self._library = library
        self._token = token
        self._pace_ms = pace_ms

    def app(self) -> web.Application:
        """The routes; all but the probes ask for the token."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._authenticate])
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.get("/v1/models", self._models),
                web.get("/healthz", self._alive),
                web.get("/readyz", self._ready),
            ]
        )
        return app

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if request.path not in OPEN_PATHS and not hmac.compare_digest(
            given.encode("utf-8", "surrogateescape"), self._token.encode()
        ):
            return _error(401, "UNAUTHENTICATED", "the bearer token is missing or wrong")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _alive(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _ready(self, _: web.Request) -> web.Response:
        """Ready means that there is something to play."""
        names = [r.name for r in self._library.recordings()]
        body = {"status": "ok" if names else "no recordings", "recordings": names, "problems": self._library.problems}
        return web.json_response(body, status=200 if names else 503)

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "longhaul"}
        return web.json_response({"object": "list", "data": [model]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.json()
        except ValueError:
            return _error(400, "INVALID_JSON", "the body is not JSON")
        if not isinstance(body, dict):
            return _error(400, "INVALID_JSON", "the body is not an object")
        try:
            name, entry = self._match(request.headers, body)
        except LonghaulError as fault:
            log.warning("not replayed: %s", fault.detail)
            return _error(fault.code.rule.status, fault.code.value, fault.detail)
        log.info("replaying %s %s", name, entry.call)
        used = speak.usage(body, entry.reply)
        if not body.get("stream"):
            return web.json_response(speak.completion(MODEL, entry.call, entry.reply, used))
        return await self._stream(request, body, entry, used)

    def _match(self, headers: Mapping[str, str], body: dict[str, Any]) -> tuple[str, Entry]:
        named, call = headers.get(RECORDING_HEADER, ""), headers.get(CALL_HEADER, "")
        shape = generate.shape(named)
        if shape is not None:
            return named, generate.entry(shape, call, body)
        recording = match.choose(self._library.recordings(), headers)
        entry = match.find(recording, call)
        match.check(recording, entry, body)
        return recording.name, entry

    async def _stream(
        self, request: web.Request, body: dict[str, Any], entry: Entry, used: dict[str, Any]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        pace_s = (self._pace_ms if entry.pace_ms is None else entry.pace_ms) / 1000 if self._pace_ms else 0.0
        for chunk in speak.chunks(MODEL, entry.call, entry.reply):
            await response.write(_event(chunk))
            if pace_s:
                await asyncio.sleep(pace_s)
        if (body.get("stream_options") or {}).get("include_usage"):
            await response.write(_event(speak.usage_chunk(MODEL, entry.call, used)))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "replay", "code": code}}, status=status)
