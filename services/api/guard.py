"""The outermost layer: headers that every answer carries, and an answer for every fault nobody expected."""

import logging

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agents.contracts.errors import ErrorCode
from services.api.problems import respond

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}

log = logging.getLogger(__name__)


class Guard:
    """An ASGI layer around the whole application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; an exception is logged and answered 500, without its details."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began = False

        async def guarded(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, guarded)
        except Exception:
            log.exception("a request failed", extra={"method": scope["method"], "path": scope["path"][:500]})
            if began:
                raise  # the connection is cut: half an answer must not look like a whole one
            answer = respond(Request(scope), ErrorCode.INTERNAL, "the request failed; the server's log says why")
            await answer(scope, receive, guarded)
