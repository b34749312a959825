"""The model client against the fault engine: every way a model can fail, over a real connection."""

import asyncio
import time

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.model import (
    CALL_HEADER,
    INSTRUCTION_HEADER,
    KEY_HEADER,
    RECORDING_HEADER,
    AssistantMessage,
    ModelReply,
    ModelRequest,
    SystemMessage,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from agents.contracts.plan import Tier
from agents.contracts.tool import ToolCall
from gpu.engine.fault import FaultEngine
from gpu.engine.trouble import Behaviour, Call, Script
from services.inference import OpenAiModel
from services.settings import Settings

pytestmark = pytest.mark.asyncio

SECRET = "sk-very-secret-key"
SHELL = Call(name="shell", arguments={"command": "ls"})


def request(tier: Tier = "full") -> ModelRequest:
    return ModelRequest(
        key="task_X/0/executor/1.fix/1/2/m1",
        coordinate="executor/1.fix/1/2/m1",
        tenant_id="t",
        task_id="task_X",
        agent_id="agent_X",
        fence=1,
        tier=tier,
        instruction_sha256="a" * 64,
        recording="some_recording",
        messages=(
            SystemMessage(content="system"),
            UserMessage(content="do it"),
            AssistantMessage(tool_calls=(ToolCall(id="c0", name="shell", arguments='{"command":"ls"}'),)),
            ToolMessage(tool_call_id="c0", content='{"tool":"shell","exit_code":0}\nfile'),
        ),
        tools=(ToolSchema(name="shell", description="run", parameters_json='{"type":"object"}'),),
        max_tokens=100,
    )


def settings(engine: FaultEngine, **over: object) -> Settings:
    values: dict[str, object] = {
        "model_base_url": engine.url,
        "model_api_key": SECRET,
        "model_full": "big",
        "model_fast": "small",
        "model_prompt_price_micro": 1_000_000,
        "model_completion_price_micro": 2_000_000,
        "model_timeout_s": 5.0,
    }
    return Settings.model_validate(values | over)


class Heard:
    """Collects what is streamed."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.something = asyncio.Event()

    async def __call__(self, text: str) -> None:
        self.pieces.append(text)
        self.something.set()

    @property
    def text(self) -> str:
        return "".join(self.pieces)


async def ask(behaviour: Behaviour, heard: Heard | None = None, max_bytes: int = 1 << 20, **over: object) -> ModelReply:
    async with (
        FaultEngine(Script(script=(behaviour,))) as engine,
        OpenAiModel(settings(engine, **over), max_reply_bytes=max_bytes) as model,
    ):
        return await model.call(request(), heard or Heard())


async def test_a_reply_is_streamed_assembled_counted_and_priced() -> None:
    heard = Heard()
    reply = await ask(Behaviour(text="I will look.", tool_calls=(SHELL, SHELL)), heard)
    assert reply.text.strip() == "I will look." == heard.text.strip()
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [("shell", '{"command": "ls"}')] * 2
    assert len({c.id for c in reply.tool_calls}) == 2
    assert reply.finish_reason == "tool_calls"
    assert (reply.usage.prompt_tokens, reply.usage.cached_tokens, reply.usage.completion_tokens) == (100, 64, 20)
    assert reply.usage.cost_micro == 140


async def test_what_is_sent_is_plain_openai_with_our_headers() -> None:
    async with FaultEngine(Script(fallback=Behaviour(text="x"))) as engine, OpenAiModel(settings(engine)) as model:
        await model.call(request("full"), Heard())
        await model.call(request("fast"), Heard())
    first, second = engine.asked
    assert (first.body["model"], second.body["model"]) == ("big", "small")
    assert first.headers["Authorization"] == f"Bearer {SECRET}"
    assert first.headers[CALL_HEADER] == "executor/1.fix/1/2/m1"
    assert first.headers[INSTRUCTION_HEADER] == "a" * 64
    assert first.headers[RECORDING_HEADER] == "some_recording"
    assert first.headers[KEY_HEADER] == "task_X/0/executor/1.fix/1/2/m1"
    assert first.body["stream_options"] == {"include_usage": True}
    assert first.body["tool_choice"] == "required"
    assert first.body["tools"] == [
        {"type": "function", "function": {"name": "shell", "description": "run", "parameters": {"type": "object"}}}
    ]
    assert [m["role"] for m in first.body["messages"]] == ["system", "user", "assistant", "tool"]
    assert first.body["messages"][2]["tool_calls"][0]["function"]["arguments"] == '{"command":"ls"}'


async def test_one_named_model_serves_both_tiers() -> None:
    async with (
        FaultEngine(Script(fallback=Behaviour(text="x"))) as engine,
        OpenAiModel(settings(engine, model_full="")) as model,
    ):
        await model.call(request("full"), Heard())
    assert engine.asked[0].body["model"] == "small"


async def test_a_body_that_is_not_a_stream_is_understood() -> None:
    heard = Heard()
    reply = await ask(Behaviour(do="plain", text="whole", tool_calls=(SHELL,)), heard)
    assert (reply.text, heard.text, reply.tool_calls[0].name) == ("whole", "whole", "shell")


async def test_dialects_are_understood() -> None:
    heard = Heard()
    reply = await ask(Behaviour(do="dialect", text="Now.", tool_calls=(SHELL, SHELL)), heard)
    assert heard.text == "Let me think. Now."
    assert reply.text == "Now."
    assert [(c.name, c.arguments) for c in reply.tool_calls] == [("shell", '{"command": "ls"}')] * 2
    assert all(c.id.startswith("call_") for c in reply.tool_calls)
    assert len({c.id for c in reply.tool_calls}) == 2
    assert (reply.prompt_token_ids, reply.completion_token_ids, reply.logprobs) == ((1, 2, 3), (7, 8), (-0.5,))


async def test_missing_usage_is_estimated_from_the_text() -> None:
    reply = await ask(Behaviour(do="no_usage", text="twelve chars", tool_calls=(SHELL,)))
    assert reply.usage.prompt_tokens > 20
    assert reply.usage.completion_tokens >= 3


async def test_no_choice_is_an_empty_reply_and_half_a_call_stays_half() -> None:
    assert (await ask(Behaviour(do="empty_choices"))).text == ""
    truncated = await ask(Behaviour(do="truncated", tool_calls=(SHELL,)))
    assert truncated.finish_reason == "length"
    assert truncated.tool_calls[0].arguments == '{"command": "rm -r'
    assert (await ask(Behaviour(do="bad_arguments"))).tool_calls[0].arguments == '{"command": ls -la'


@pytest.mark.parametrize(
    ("behaviour", "code", "says"),
    [
        (Behaviour(do="rate_limited", retry_after="7"), ErrorCode.ENGINE_UNAVAILABLE, "429"),
        (Behaviour(do="error", status=500), ErrorCode.ENGINE_UNAVAILABLE, "500: scripted fault"),
        (Behaviour(do="error", status=503), ErrorCode.ENGINE_UNAVAILABLE, "503"),
        (Behaviour(do="html"), ErrorCode.ENGINE_UNAVAILABLE, "<html>"),
        (Behaviour(do="html", status=502), ErrorCode.ENGINE_UNAVAILABLE, "502"),
        (Behaviour(do="error", status=401, message=f"bad key {SECRET}"), ErrorCode.ENGINE_REFUSED, "MODEL_API_KEY"),
        (Behaviour(do="error", status=403), ErrorCode.ENGINE_REFUSED, "LONGHAUL_MODEL_API_KEY"),
        (Behaviour(do="error", status=404), ErrorCode.ENGINE_REFUSED, "no model 'big'"),
        (Behaviour(do="error", status=400, message=f"odd {SECRET}"), ErrorCode.ENGINE_REFUSED, "said: odd ***"),
        (Behaviour(do="error", status=422), ErrorCode.ENGINE_REFUSED, "scripted fault"),
        (Behaviour(do="redirect"), ErrorCode.ENGINE_REFUSED, "redirects"),
        (Behaviour(do="context_too_long"), ErrorCode.CONTEXT_TOO_LONG, "maximum context length"),
        (Behaviour(do="error", status=413), ErrorCode.CONTEXT_TOO_LONG, "does not fit"),
        (
            Behaviour(do="in_band_error", message="prompt is too long"),
            ErrorCode.CONTEXT_TOO_LONG,
            "prompt is too long",
        ),
        (Behaviour(do="in_band_error"), ErrorCode.REPLY_ABORTED, "scripted fault"),
        (Behaviour(do="abort"), ErrorCode.REPLY_ABORTED, "abort"),
        (Behaviour(do="cut"), ErrorCode.REPLY_ABORTED, "broke off"),
        (Behaviour(do="no_done"), ErrorCode.REPLY_ABORTED, "broke off"),
        (Behaviour(do="invalid_json"), ErrorCode.REPLY_ABORTED, "oops"),
        (Behaviour(do="endless"), ErrorCode.REPLY_ABORTED, "longer than"),
    ],
)
async def test_every_failure_has_its_code(behaviour: Behaviour, code: ErrorCode, says: str) -> None:
    with pytest.raises(LonghaulError) as caught:
        await ask(behaviour)
    assert caught.value.code == code
    assert says in caught.value.detail
    assert SECRET not in str(caught.value)


async def test_retry_after_is_handed_on_in_both_forms() -> None:
    for value, seconds in (("7", 7.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0)):
        with pytest.raises(LonghaulError) as caught:
            await ask(Behaviour(do="rate_limited", retry_after=value))
        assert caught.value.retry_after_s == seconds
    with pytest.raises(LonghaulError) as caught:
        await ask(Behaviour(do="rate_limited", retry_after="soon"))
    assert caught.value.retry_after_s is None


async def test_an_engine_that_is_down_is_unavailable() -> None:
    async with FaultEngine(Script()) as engine:
        pass
    async with OpenAiModel(settings(engine)) as model:
        with pytest.raises(LonghaulError) as caught:
            await model.call(request(), Heard())
    assert caught.value.code == ErrorCode.ENGINE_UNAVAILABLE
    assert engine.url in caught.value.detail


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (Behaviour(do="hang"), ErrorCode.ENGINE_UNAVAILABLE),
        (Behaviour(do="hang_midway"), ErrorCode.REPLY_ABORTED),
    ],
)
async def test_silence_is_bounded(behaviour: Behaviour, code: ErrorCode) -> None:
    began = time.monotonic()
    with pytest.raises(LonghaulError) as caught:
        await ask(behaviour, model_timeout_s=0.5)
    assert caught.value.code == code
    assert "0.5 s" in caught.value.detail
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("field", ["tool_choice", "stream_options", "max_tokens", "temperature"])
async def test_a_field_that_is_refused_is_left_out_and_remembered(field: str) -> None:
    script = Script(fallback=Behaviour(do="refuse_field", field=field, text="fine"))
    async with FaultEngine(script) as engine, OpenAiModel(settings(engine)) as model:
        assert (await model.call(request(), Heard())).text.strip() == "fine"
        assert len(engine.asked) == 2
        assert (await model.call(request(), Heard())).text.strip() == "fine"
    assert len(engine.asked) == 3
    last = engine.asked[-1].body
    assert last.get(field) in (None, "auto")
    if field == "max_tokens":
        assert last["max_completion_tokens"] == 100


async def test_a_refusal_of_everything_ends() -> None:
    fault = Behaviour(do="error", status=400, message="tool_choice stream_options max_tokens temperature are wrong")
    async with FaultEngine(Script(fallback=fault)) as engine, OpenAiModel(settings(engine)) as model:
        with pytest.raises(LonghaulError) as caught:
            await model.call(request(), Heard())
    assert caught.value.code == ErrorCode.ENGINE_REFUSED
    assert len(engine.asked) <= 5


async def test_nothing_configured_says_what_to_set() -> None:
    for over, name in (({"model_base_url": ""}, "BASE_URL"), ({"model_full": "", "model_fast": ""}, "MODEL_FULL")):
        async with FaultEngine(Script()) as engine, OpenAiModel(settings(engine, **over)) as model:
            with pytest.raises(LonghaulError) as caught:
                await model.call(request(), Heard())
        assert caught.value.code == ErrorCode.ENGINE_REFUSED
        assert name in caught.value.detail


async def test_cancelling_a_call_frees_the_engine() -> None:
    async with FaultEngine(Script(fallback=Behaviour(do="endless"))) as engine, OpenAiModel(settings(engine)) as model:
        heard = Heard()
        call = asyncio.create_task(model.call(request(), heard))
        await asyncio.wait_for(heard.something.wait(), 5)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(engine.idle(), 2)


async def test_deltas_come_at_most_twenty_times_a_second() -> None:
    heard = Heard()
    reply = await ask(Behaviour(text="word " * 2_000), heard)
    assert heard.text == reply.text
    assert len(heard.pieces) <= 2 + 20 * (reply.latency_ms / 1000)
