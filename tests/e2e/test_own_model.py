"""A user's own model: one that works, one that answers nonsense, one that is down and comes back, one that refuses."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from agents.contracts.errors import ErrorCode
from agents.contracts.event import AgentWaiting
from agents.contracts.task import StopReason, TaskResult, TaskSpec, TaskStatus
from gpu.engine.fault import FaultEngine
from gpu.engine.trouble import Behaviour, Call, Kind, Script
from services.cli.connect import Access, local
from services.client import Client
from tests.support.follow import Followed
from tests.support.stack import Stack, new_data_dir

pytestmark = pytest.mark.timeout(240)

PLAN = {
    "steps": [
        {
            "id": "write",
            "title": "Write the file",
            "instructions": "Write hello.txt",
            "acceptance": ["hello.txt says hello"],
        }
    ]
}
WORKING = (
    Behaviour(call="planner/", text="One step.", tool_calls=(Call(name="submit_plan", arguments=PLAN),)),
    Behaviour(
        call="executor/",
        text="I write it.",
        tool_calls=(
            Call(name="shell", arguments={"command": "echo hello > hello.txt"}),
            Call(name="save_artifact", arguments={"path": "hello.txt"}),
        ),
    ),
    Behaviour(
        call="executor/",
        text="Done.",
        tool_calls=(Call(name="finish_step", arguments={"summary": "written", "evidence": ["it is there"]}),),
    ),
    Behaviour(call="reviewer/", text="I look.", tool_calls=(Call(name="read_file", arguments={"path": "hello.txt"}),)),
    Behaviour(
        call="reviewer/",
        text="Good.",
        tool_calls=(
            Call(name="submit_review", arguments={"verdict": "approve", "findings": [], "evidence": ["read it"]}),
        ),
    ),
)


@pytest.fixture(scope="module")
def port() -> int:
    """Where the model is, or will be."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture(scope="module")
def access(port: int) -> Iterator[Access]:
    """A stack that was started with a model of the user's own."""
    env = {
        "LONGHAUL_MODEL_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "LONGHAUL_MODEL_FULL": "big",
        "LONGHAUL_MODEL_FAST": "small",
        "LONGHAUL_MODEL_API_KEY": "sk-user-secret",
        "LONGHAUL_MODEL_PROMPT_PRICE_MICRO": "1000000",
    }
    stack = Stack(new_data_dir(), env=env)
    try:
        stack.start()
        found = local(stack.data)
        assert found
        yield found
        assert stack.end() == 0, stack.said()
    finally:
        stack.remove()


class Running:
    """A submitted task under observation."""

    def __init__(self, client: Client, **spec: Any) -> None:
        values = {"instruction": "Write hello.txt that says hello.", "tier": "full", "checks": ["grep hello hello.txt"]}
        self._client = client
        self.id = client.submit(TaskSpec.model_validate(values | spec)).id
        self.seen = Followed(client, self.id)

    async def end(self, seconds: float = 120.0) -> TaskResult:
        """Its result, once it has ended; the engine of the test goes on answering meanwhile."""
        await asyncio.to_thread(self.seen.to_end, seconds)
        return await asyncio.to_thread(self._client.result, self.id)


@pytest.fixture
def client(access: Access) -> Iterator[Client]:
    with access.client() as made:
        yield made


async def test_a_model_that_works(client: Client, port: int) -> None:
    async with FaultEngine(Script(script=WORKING), port) as engine:
        result = await Running(client).end()
    assert result.status is TaskStatus.COMPLETED, result
    assert [a.path for a in result.artifacts] == ["hello.txt"]
    assert [a.body["model"] for a in engine.asked] == ["big"] * 5
    assert result.usage.prompt_tokens == 500
    assert result.usage.cached_tokens == 320
    assert result.usage.cost_micro == 500
    assert result.turns == 5


async def test_auto_asks_the_fast_model_for_the_executor(client: Client, port: int) -> None:
    async with FaultEngine(Script(script=WORKING), port) as engine:
        result = await Running(client, tier="auto").end()
    assert result.status is TaskStatus.COMPLETED, result
    assert [a.body["model"] for a in engine.asked] == ["big", "small", "small", "big", "big"]


@pytest.mark.parametrize(
    "kind",
    [
        "reply",
        "empty_choices",
        "bad_arguments",
        "truncated",
        "abort",
        "cut",
        "in_band_error",
        "invalid_json",
        "no_done",
    ],
)
async def test_a_model_that_answers_nonsense_ends_the_task_with_a_reason(client: Client, port: int, kind: Kind) -> None:
    nonsense = Behaviour(do=kind, text="Colourless green ideas sleep furiously.")
    async with FaultEngine(Script(fallback=nonsense), port) as engine:
        result = await Running(client, limits={"turns": 20}).end()
    assert result.status is TaskStatus.FAILED
    assert result.stop_reason in (StopReason.NO_PROGRESS, StopReason.ERROR), result
    assert 2 <= len(engine.asked) <= 30


async def test_trouble_in_the_middle_is_overcome(client: Client, port: int) -> None:
    trouble = (
        Behaviour(call="planner/", do="cut"),
        Behaviour(call="planner/", do="rate_limited", retry_after="1"),
        Behaviour(call="planner/", do="html", status=502),
        Behaviour(call="executor/", do="bad_arguments"),
        Behaviour(call="reviewer/", do="truncated"),
    )
    async with FaultEngine(Script(script=trouble + WORKING), port):
        result = await Running(client).end()
    assert result.status is TaskStatus.COMPLETED, result


async def test_a_model_that_is_down_is_waited_for(client: Client, port: int) -> None:
    running = Running(client)
    waiting = await asyncio.to_thread(
        running.seen.until, lambda e: e.data.type == "agent.waiting", 60, "the agent says that it waits"
    )
    assert isinstance(waiting.data, AgentWaiting)
    assert "model" in waiting.data.waiting_for or "engine" in waiting.data.waiting_for
    view = await asyncio.to_thread(client.get, running.id)
    assert view.status is TaskStatus.WAITING
    assert view.waiting_for
    async with FaultEngine(Script(script=WORKING), port):
        result = await running.end()
    assert result.status is TaskStatus.COMPLETED, result


@pytest.mark.parametrize(
    ("status", "says"), [(401, "LONGHAUL_MODEL_API_KEY"), (404, "LONGHAUL_MODEL_FULL"), (400, "went wrong")]
)
async def test_a_model_that_refuses_ends_the_task_and_says_what_to_set(
    client: Client, port: int, status: int, says: str
) -> None:
    refusal = Behaviour(do="error", status=status, message="sk-user-secret went wrong")
    async with FaultEngine(Script(fallback=refusal), port):
        result = await Running(client).end()
    assert result.stop_reason is StopReason.ERROR
    assert result.error
    assert result.error.code is ErrorCode.ENGINE_REFUSED
    assert says in result.error.detail
    assert "sk-user-secret" not in result.model_dump_json()
