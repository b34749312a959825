"""The fault engine: a real HTTP server that answers as a script says. For tests of whoever calls a model.

``python -m gpu.engine.fault --port 0 --script FILE`` prints ``{"port": N}`` and serves until a signal; in a test,
``async with FaultEngine(Script(...)) as engine`` and ask `engine.url`.
"""

import argparse
import asyncio
import json
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from agents.contracts.model import CALL_HEADER
from gpu.engine.trouble import ANSWERS, MODEL, Behaviour, Script


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def call(self) -> str:
        """The coordinate it named."""
        return self.headers.get(CALL_HEADER, "")


class FaultEngine:
    """Plays a script on a port (0: a free one) of the loopback interface. `asked` is what came in, in order."""

    def __init__(self, script: Script, port: int = 0) -> None:
        self._left = [b for b in script.script for _ in range(b.times)]
        self._fallback = script.fallback
        self._port = port
        self._runner: web.AppRunner | None = None
        self.asked: list[Asked] = []
        self._active = 0
        self._idle = asyncio.Event()

    @property
    def port(self) -> int:
        """The port it listens on once it is started."""
        return self._port

    @property
    def url(self) -> str:
        """The base URL, as LONGHAUL_MODEL_BASE_URL wants it."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def idle(self) -> None:
        """Wait until no answer is under way (once there was one)."""
        await self._idle.wait()

    async def start(self) -> None:
        """Listen. The port is known then."""
        app = web.Application(client_max_size=64 << 20)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.get("/v1/models", self._models),
                web.get("/healthz", self._alive),
                web.get("/asked", self._report),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and drop what is under way."""
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.stop()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(dict(request.headers), await request.json())
        self.asked.append(asked)
        behaviour = self._next(asked.call)
        self._active += 1
        self._idle.clear()
        try:
            await asyncio.sleep(behaviour.delay_s)
            return await ANSWERS[behaviour.do](request, behaviour)
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()

    def _next(self, call: str) -> Behaviour:
        found = next((i for i, b in enumerate(self._left) if call.startswith(b.call)), None)
        return self._fallback if found is None else self._left.pop(found)

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _alive(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _report(self, _: web.Request) -> web.Response:
        return web.json_response([{"call": a.call, "tools": len(a.body.get("tools") or ())} for a in self.asked])


async def _serve(script: Script, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with FaultEngine(script, port) as engine:
        print(json.dumps({"port": engine.port}), flush=True)
        await stop.wait()


def main() -> int:
    """Serve a script until a signal."""
    parser = argparse.ArgumentParser(prog="gpu.engine.fault", description="A model that misbehaves as scripted.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument(
        "--script", type=Path, required=True, help='JSON: {"script": [behaviour…], "fallback": behaviour}'
    )
    given = parser.parse_args()
    asyncio.run(_serve(Script.model_validate_json(given.script.read_bytes()), given.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
