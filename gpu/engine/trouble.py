"""What the fault engine can do to whoever asks it: each behaviour is one small function over the response."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import Field

from agents.contracts.base import Edge

MODEL = "fault"
Json = dict[str, Any]

Kind = Literal[
    "reply",
    "plain",
    "no_usage",
    "dialect",
    "empty_choices",
    "bad_arguments",
    "truncated",
    "html",
    "invalid_json",
    "cut",
    "no_done",
    "abort",
    "in_band_error",
    "hang_midway",
    "endless",
    "hang",
    "error",
    "rate_limited",
    "context_too_long",
    "refuse_field",
    "redirect",
]


class Call(Edge):
    """A tool call to answer with; `arguments` is an object, or text to send as it is."""

    name: str
    arguments: Json | str


class Behaviour(Edge):
    """One answer of a script. `call` limits it to coordinates that begin so (``executor/``). `delay_s` comes first."""

    do: Kind = "reply"
    call: str = ""
    times: Annotated[int, Field(ge=1)] = 1
    delay_s: float = 0.0
    text: str = ""
    tool_calls: tuple[Call, ...] = ()
    finish_reason: str | None = None
    status: int = 500
    message: str = "scripted fault"
    code: str | None = None
    retry_after: str | None = None
    field: str = "tool_choice"


class Script(Edge):
    """Behaviours in order, each used `times` times, then the fallback for ever."""

    script: tuple[Behaviour, ...] = ()
    fallback: Behaviour = Behaviour(do="error", status=500, message="the script is at its end")


class Stream:
    """A reply under way as server-sent events."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        self.response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})

    async def data(self, text: str) -> None:
        """One `data:` line."""
        if not self.response.prepared:
            await self.response.prepare(self.request)
        await self.response.write(f"data: {text}\n\n".encode())

    async def delta(self, delta: Json, finish: str | None = None) -> None:
        """One chunk with one choice."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        await self.data(json.dumps({"id": "x", "object": "chat.completion.chunk", "model": MODEL, "choices": [choice]}))

    async def usage(self) -> None:
        """The usage chunk."""
        await self.data(json.dumps({"model": MODEL, "choices": [], "usage": USAGE}))

    async def end(self, *, done: bool = True) -> web.StreamResponse:
        """The end of the stream, with or without its mark."""
        if done:
            await self.data("[DONE]")
        await self.response.write_eof()
        return self.response

    def cut(self) -> web.StreamResponse:
        """Drop the connection where it is."""
        if self.request.transport:
            self.request.transport.abort()
        return self.response


USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 64},
}
Answer = Callable[[web.Request, Behaviour], Awaitable[web.StreamResponse]]


def _raw(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _finish(b: Behaviour) -> str:
    return b.finish_reason or ("tool_calls" if b.tool_calls else "stop")


async def _say(stream: Stream, b: Behaviour) -> None:
    await stream.delta({"role": "assistant", "content": ""})
    for word in b.text.split(" "):
        await stream.delta({"content": word + " "})
    for i, call in enumerate(b.tool_calls):
        head = {
            "index": i,
            "id": f"call_{id(b)}_{i}",
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        await stream.delta({"tool_calls": [head]})
        await stream.delta({"tool_calls": [{"index": i, "function": {"arguments": _raw(call)}}]})


async def reply(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """As a good engine answers."""
    stream = Stream(request)
    await _say(stream, b)
    await stream.delta({}, _finish(b))
    if b.do != "no_usage":
        await stream.usage()
    return await stream.end()


async def plain(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """One JSON body, although a stream was asked for."""
    calls = [{"id": f"c{i}", "function": {"name": c.name, "arguments": _raw(c)}} for i, c in enumerate(b.tool_calls)]
    message = {"role": "assistant", "content": b.text, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": _finish(b)}
    return web.json_response({"model": MODEL, "choices": [choice], "usage": USAGE})


async def dialect(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """What lesser engines do: reasoning apart, calls without index or id, arguments as an object, null usage, null
    content, token ids and log-probabilities."""
    stream = Stream(request)
    await stream.delta({"role": "assistant", "content": None, "reasoning_content": "Let me think. "})
    await stream.data(json.dumps({"choices": [{"delta": {"content": b.text}}], "usage": None}))
    for call in b.tool_calls:
        await stream.delta({"tool_calls": [{"function": {"name": call.name, "arguments": call.arguments}}]})
    choice = {"delta": {}, "token_ids": [7, 8], "logprobs": {"content": [{"logprob": -0.5}]}, "finish_reason": "stop"}
    await stream.data(json.dumps({"prompt_token_ids": [1, 2, 3], "choices": [choice], "usage": USAGE}))
    return await stream.end()


async def empty_choices(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """No choice at all."""
    stream = Stream(request)
    await stream.data(json.dumps({"model": MODEL, "choices": []}))
    return await stream.end()


async def bad_arguments(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """A call whose arguments are not JSON."""
    name = b.tool_calls[0].name if b.tool_calls else "shell"
    return await reply(request, Behaviour(text=b.text, tool_calls=(Call(name=name, arguments='{"command": ls -la'),)))


async def truncated(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """Half a call, because the allowance of tokens ran out."""
    name = b.tool_calls[0].name if b.tool_calls else "shell"
    half = Call(name=name, arguments='{"command": "rm -r')
    return await reply(request, Behaviour(text=b.text, tool_calls=(half,), finish_reason="length"))


async def html(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """A proxy's page."""
    page = f"<!doctype html><html><body><h1>{b.message}</h1></body></html>"
    return web.Response(text=page, content_type="text/html", status=200 if b.status == 500 else b.status)


async def broken_stream(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """Begins well, then goes wrong in the way `do` says."""
    stream = Stream(request)
    await _say(stream, Behaviour(text=b.text or "so far so good"))
    if b.do == "cut":
        return stream.cut()
    if b.do == "hang_midway":
        await asyncio.Event().wait()
    if b.do == "invalid_json":
        await stream.data('{"choices": [{"delta": {"content": oops')
    if b.do == "in_band_error":
        await stream.data(json.dumps({"error": {"message": b.message, "code": b.code or 500}}))
    if b.do == "abort":
        await stream.delta({}, "abort")
    return await stream.end(done=b.do != "no_done")


async def endless(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """Talks until the connection goes."""
    stream = Stream(request)
    while True:
        await stream.delta({"content": "and on " * 500})
        await asyncio.sleep(0.001)


async def hang(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """Accepts and never answers."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def error(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """A refusal in OpenAI's shape with the status given."""
    status, code, message = b.status, b.code, b.message
    if b.do == "rate_limited":
        status, code = 429, "rate_limit_exceeded"
    if b.do == "context_too_long":
        status, code, message = 400, "context_length_exceeded", "This model's maximum context length is 4096 tokens."
    headers = {"Retry-After": b.retry_after} if b.retry_after else {}
    body = {"error": {"message": message, "type": "scripted", "code": code}}
    return web.json_response(body, status=status, headers=headers)


async def refuse_field(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """A 400 that names a field of the request as long as the field is there (for tool_choice: as long as it is
    "required"), else the reply."""
    body = await request.json()
    used = body.get(b.field)
    if used is None or (b.field == "tool_choice" and used != "required"):
        return await reply(request, b)
    return await error(request, Behaviour(status=400, message=f"{b.field} is not supported by this server"))


async def redirect(request: web.Request, b: Behaviour) -> web.StreamResponse:
    """Points elsewhere."""
    return web.Response(status=307, headers={"Location": "http://127.0.0.1:9/elsewhere"})


ANSWERS: dict[Kind, Answer] = {
    "reply": reply,
    "plain": plain,
    "no_usage": reply,
    "dialect": dialect,
    "empty_choices": empty_choices,
    "bad_arguments": bad_arguments,
    "truncated": truncated,
    "html": html,
    "invalid_json": broken_stream,
    "cut": broken_stream,
    "no_done": broken_stream,
    "abort": broken_stream,
    "in_band_error": broken_stream,
    "hang_midway": broken_stream,
    "endless": endless,
    "hang": hang,
    "error": error,
    "rate_limited": error,
    "context_too_long": error,
    "refuse_field": refuse_field,
    "redirect": redirect,
}
