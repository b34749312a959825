"""A reply put together from what an engine streams, in all the dialects that engines speak."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.tool import ToolCall
from services.inference.failures import error_of, excerpt, is_too_long, whole

Json = dict[str, Any]


@dataclass
class _Call:
    """A tool call as its pieces arrive."""

    index: int | None = None
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass
class ReplyParts:
    """What has arrived so far (`heard`: whether anything has). `add` takes a chunk of a stream or a whole answer."""

    heard: bool = False
    text: str = ""
    calls: list[_Call] = field(default_factory=list)
    finish_reason: str | None = None
    model: str | None = None
    usage: Json | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(self, chunk: Any) -> str:
        """Take a chunk; answers the text to show for it (the model's reasoning too, which is shown but not kept).

        Raises:
            LonghaulError: ``REPLY_ABORTED`` for an error inside the stream or an aborted reply; ``CONTEXT_TOO_LONG``.
        """
        self.heard = True
        if not isinstance(chunk, dict):
            raise aborted(f"a piece of the reply is no JSON object: {excerpt(str(chunk))}")
        if chunk.get("error"):
            raise _in_band(chunk)
        self.model = chunk.get("model") or self.model
        self.usage = _object(chunk.get("usage")) or self.usage
        self.prompt_token_ids = _ids(chunk.get("prompt_token_ids")) or self.prompt_token_ids
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return ""
        return self._choice(choices[0])

    def _choice(self, choice: Json) -> str:
        delta = _object(choice.get("delta")) or _object(choice.get("message")) or {}
        text, thought = _text(delta.get("content")), _text(delta.get("reasoning_content") or delta.get("reasoning"))
        refusal = _text(delta.get("refusal"))
        self.text += text + refusal
        for piece in delta.get("tool_calls") or ():
            if isinstance(piece, dict):
                self._call(piece)
        self.finish_reason = "content_filter" if refusal else choice.get("finish_reason") or self.finish_reason
        self.prompt_token_ids = _ids(choice.get("prompt_token_ids")) or self.prompt_token_ids
        self.token_ids += _ids(choice.get("token_ids")) or ()
        self.logprobs += _logprobs(choice.get("logprobs"))
        if self.finish_reason in ("abort", "error"):
            raise aborted(f"the engine ended the reply itself (finish_reason {self.finish_reason!r})")
        return thought + text + refusal

    def _call(self, piece: Json) -> None:
        function = _object(piece.get("function")) or {}
        call = self._find(piece.get("index"), str(piece.get("id") or ""), bool(function.get("name")))
        call.id = call.id or str(piece.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            call.arguments += arguments
        elif arguments is not None:
            call.arguments = json.dumps(arguments, ensure_ascii=False)

    def _find(self, index: Any, call_id: str, named: bool) -> _Call:
        """The call a piece belongs to: by index; but an engine that counts wrongly (or not at all) shows a new call by
        a new id, or by a name where the last call already has one."""
        known = [c for c in self.calls if c.index == index] if isinstance(index, int) else self.calls
        last = known[-1] if known else None
        if last and (call_id in ("", last.id) or not last.id) and not (named and not call_id and last.name):
            return last
        call = _Call(index if isinstance(index, int) else None)
        self.calls.append(call)
        return call

    def tool_calls(self, key: str) -> tuple[ToolCall, ...]:
        """The calls in the order they came; an id that is missing or doubled is replaced by one made from `key`."""
        seen: set[str] = set()
        calls = []
        for i, call in enumerate(self.calls):
            own = "call_" + hashlib.sha256(f"{key}/c{i}".encode()).hexdigest()[:20]
            call_id = own if not call.id or call.id in seen else call.id
            seen.add(call_id)
            calls.append(ToolCall(id=whole(call_id), name=whole(call.name), arguments=whole(call.arguments)))
        return tuple(calls)


def aborted(detail: str) -> LonghaulError:
    """A reply that broke off or makes no sense as a stream."""
    return LonghaulError(ErrorCode.REPLY_ABORTED, detail)


def _in_band(chunk: Json) -> LonghaulError:
    text = json.dumps(chunk.get("error"), ensure_ascii=False)
    if is_too_long(text):
        return LonghaulError(
            ErrorCode.CONTEXT_TOO_LONG, f"the engine says that the prompt does not fit: {excerpt(text)}"
        )
    said = error_of(json.dumps(chunk)).get("message") or text
    return aborted(f"the engine failed in the middle of its reply: {excerpt(str(said))}")


def _object(value: Any) -> Json | None:
    return value if isinstance(value, dict) else None


def _text(content: Any) -> str:
    """Content is text, or in some dialects a list of parts with text in them."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(_text(p.get("text")) if isinstance(p, dict) else _text(p) for p in content)


def _ids(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
        return None
    return tuple(value) or None


def _logprobs(value: Any) -> list[float]:
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list):
        return []
    found = [c.get("logprob") for c in content if isinstance(c, dict)]
    return [float(p) for p in found if isinstance(p, (int, float))]
