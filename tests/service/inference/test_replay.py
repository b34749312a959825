"""The model client against the replay engine over HTTP."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.model import AssistantMessage, ModelReply, ModelRequest, ToolMessage, ToolSchema, UserMessage
from agents.contracts.tool import ToolCall
from gpu.engine.app import ReplayEngine
from gpu.engine.recording import Library
from services.inference import OpenAiModel
from services.settings import Settings

pytestmark = pytest.mark.asyncio

TOKEN = "replay-token"
DIGEST = hashlib.sha256(b"do it").hexdigest()
RECORDING = {
    "name": "small",
    "instruction": "do it",
    "instruction_sha256": DIGEST,
    "entries": [
        {
            "call": "executor/1.fix/1/2/m1",
            "expect": {"tools": ["shell"], "observations": [{"tool": "shell", "exit_code": 1}]},
            "reply": {
                "text": "It failed: näher hinsehen.\nThen again.",
                "tool_calls": [
                    {"name": "shell", "arguments": {"command": "echo 'ü' " + "x" * 500}},
                    {"name": "shell", "arguments": {"command": "true"}},
                ],
            },
        }
    ],
}


@pytest_asyncio.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    (tmp_path / "small.json").write_text(json.dumps(RECORDING))
    runner = web.AppRunner(ReplayEngine(Library(tmp_path), TOKEN).app())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    await runner.cleanup()


def request(**over: Any) -> ModelRequest:
    values: dict[str, Any] = {
        "key": "task_X/0/executor/1.fix/1/2/m1",
        "coordinate": "executor/1.fix/1/2/m1",
        "tenant_id": "t",
        "task_id": "task_X",
        "agent_id": "agent_X",
        "fence": 1,
        "tier": "replay",
        "instruction_sha256": DIGEST,
        "messages": (
            UserMessage(content="x" * 400),
            AssistantMessage(tool_calls=(ToolCall(id="a", name="shell", arguments="{}"),)),
            ToolMessage(tool_call_id="a", content='{"tool":"shell","exit_code":1}\nTraceback at 12:00:01'),
        ),
        "tools": (ToolSchema(name="shell", description="", parameters_json="{}"),),
        "max_tokens": 10,
    }
    return ModelRequest(**values | over)


async def ask(url: str, asked: ModelRequest, token: str = TOKEN) -> tuple[ModelReply, str]:
    heard: list[str] = []

    async def on_text(text: str) -> None:
        heard.append(text)

    prices = {"model_prompt_price_micro": 10**6, "model_completion_price_micro": 10**6}
    settings = Settings.model_validate({"replay_url": url, "replay_token": token} | prices)
    async with OpenAiModel(settings) as model:
        return await model.call(asked, on_text), "".join(heard)


async def test_the_recorded_words_arrive_exactly_and_cost_nothing(url: str) -> None:
    reply, heard = await ask(url, request())
    recorded: Any = RECORDING["entries"][0]["reply"]  # type: ignore[index]
    assert reply.text == heard == recorded["text"]
    assert [json.loads(c.arguments) for c in reply.tool_calls] == [c["arguments"] for c in recorded["tool_calls"]]
    assert reply.finish_reason == "tool_calls"
    assert reply.usage.prompt_tokens >= 100
    assert reply.usage.completion_tokens >= 130
    assert reply.usage.cost_micro == 0
    again, _ = await ask(url, request())
    assert again.tool_calls == reply.tool_calls


async def test_by_name_and_without_a_stream_it_says_the_same(url: str) -> None:
    reply, _ = await ask(url, request(recording="small", instruction_sha256="0" * 64))
    headers = {"Authorization": f"Bearer {TOKEN}", "X-Longhaul-Recording": "small"}
    headers["X-Longhaul-Call"] = "executor/1.fix/1/2/m1"
    shown = {
        "tools": [{"function": {"name": "shell"}}],
        "messages": [{"role": "tool", "content": '{"tool":"shell","exit_code":1}'}],
    }
    async with (
        aiohttp.ClientSession() as http,
        http.post(url + "/chat/completions", json=shown, headers=headers) as answer,
    ):
        whole = (await answer.json())["choices"][0]["message"]
    assert whole["content"] == reply.text
    assert [c["function"]["arguments"] for c in whole["tool_calls"]] == [c.arguments for c in reply.tool_calls]


@pytest.mark.parametrize(
    ("over", "code", "says"),
    [
        ({"messages": (UserMessage(content="x"),)}, ErrorCode.REPLAY_MISMATCH, '"exit_code": 1'),
        ({"tools": ()}, ErrorCode.REPLAY_MISMATCH, '"tools": []'),
        ({"coordinate": "executor/1.fix/1/9/m1"}, ErrorCode.REPLAY_NOT_RECORDED, "executor/1.fix/1/2/m1"),
        ({"instruction_sha256": "0" * 64}, ErrorCode.REPLAY_NOT_RECORDED, "small"),
        ({"recording": "other"}, ErrorCode.REPLAY_NOT_RECORDED, "small"),
    ],
)
async def test_what_was_not_recorded_is_an_error_that_shows_both(
    url: str, over: dict[str, Any], code: ErrorCode, says: str
) -> None:
    with pytest.raises(LonghaulError) as caught:
        await ask(url, request(**over))
    assert caught.value.code == code
    assert says in caught.value.detail


async def test_a_wrong_token_is_refused_and_probes_need_none(url: str) -> None:
    with pytest.raises(LonghaulError) as caught:
        await ask(url, request(), token="wrong")
    assert caught.value.code == ErrorCode.ENGINE_REFUSED
    root = url.removesuffix("/v1")
    async with aiohttp.ClientSession() as http:
        for path in ("/healthz", "/readyz"):
            async with http.get(root + path) as answer:
                assert answer.status == 200
        async with http.get(url + "/models") as answer:
            assert answer.status == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with http.get(url + "/models", headers=headers) as answer:
            assert (await answer.json())["data"][0]["id"] == "replay"
        async with http.post(url + "/chat/completions", data=b"{nonsense", headers=headers) as answer:
            assert answer.status == 400


async def test_a_run_is_generated_where_its_name_asks_for_it(url: str) -> None:
    good = ToolMessage(tool_call_id="a", content='{"tool":"shell","exit_code":0}')
    last = {"recording": "generate:2", "coordinate": "executor/1.long/1/3/m1"}
    reply, _ = await ask(url, request(**last, messages=(*request().messages[:2], good)))
    assert [call.name for call in reply.tool_calls] == ["finish_step"]
    with pytest.raises(LonghaulError) as caught:
        await ask(url, request(**last))  # its last command ended with 1
    assert caught.value.code == ErrorCode.REPLAY_MISMATCH
