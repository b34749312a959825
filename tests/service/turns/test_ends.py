"""Every way a burst or a round ends, on real parts."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.run import BurstReason
from agents.contracts.task import Limits
from services.store import tables
from tests.support.scripts import ScriptedModel, says
from tests.support.turns import Parts, Scene, new_scene, until

FINISH = says(("finish_step", {"summary": "done"}))
NOTHING_SAID = says(text="", finish="stop")


def shell(command: str, **more: object) -> Any:
    return says(("shell", {"command": command, **more}))


async def _told(scene: Scene, kind: str) -> bool:
    return (await scene.count())[kind] > 0


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(tokens=0), "tokens"),
        (Limits(cost_micro=0), "cost_micro"),
        (Limits(tokens=900), "tokens"),
    ],
)
async def test_a_budget_that_allows_no_call_ends_the_round(
    parts: Parts, tenant_id: str, limits: Limits, limit: str
) -> None:
    model = ScriptedModel([FINISH])
    scene = await new_scene(parts, tenant_id, model, limits=limits)
    end = await scene.burst()
    assert end.reason is BurstReason.BUDGET
    assert end.error is not None
    assert end.error.code is ErrorCode.BUDGET_EXHAUSTED
    assert model.asked == []
    exhausted = [e.data for e in await scene.events() if e.data.type == "budget.exhausted"]
    assert [e.limit for e in exhausted] == [limit]


async def test_turns_are_counted_over_all_agents_of_the_task(parts: Parts, tenant_id: str) -> None:
    first = await new_scene(parts, tenant_id, ScriptedModel([FINISH]), limits=Limits(turns=2))
    await first.burst()
    looping = ScriptedModel([says(("read_file", {"path": f"{n}"})) for n in range(5)])
    second = await new_scene(
        parts, tenant_id, looping, limits=Limits(turns=2), task=first.task, step="s2", sandbox=True
    )
    end = await second.burst()
    assert end.reason is BurstReason.BUDGET
    assert end.error is not None
    assert end.error.code is ErrorCode.TURN_LIMIT
    assert len(looping.asked) == 1
    call = await second.row(tables.tool_calls, agent_id=second.ref.place.agent_id)
    assert call.ended_at is not None  # the result of the last turn was kept in the same transaction


async def test_a_warning_comes_once_at_four_fifths(parts: Parts, tenant_id: str) -> None:
    replies = [says(("read_file", {"path": f"{n}"}), tokens=2_000) for n in range(4)]
    model = ScriptedModel([*replies, FINISH])
    scene = await new_scene(parts, tenant_id, model, limits=Limits(tokens=14_500), sandbox=True)
    await scene.burst()
    warned = [e.data for e in await scene.events() if e.data.type == "budget.warned"]
    assert [(w.limit, w.used, w.allowed) for w in warned] == [("tokens", 12_000, 14_500)]


async def test_other_calls_reservations_are_waited_for(parts: Parts, tenant_id: str) -> None:
    slow, fast = ScriptedModel([FINISH]), ScriptedModel([FINISH])
    slow.gate = asyncio.Event()
    limits = Limits(tokens=3_500)
    first = await new_scene(parts, tenant_id, slow, limits=limits)
    first.rules = replace(first.rules, max_tokens=3_000)
    second = await new_scene(parts, tenant_id, fast, limits=limits, task=first.task, step="s2")
    one = asyncio.create_task(first.burst())
    await until(lambda: slow.under_way == 1)
    two = asyncio.create_task(second.burst())
    await asyncio.sleep(0.5)
    assert not two.done()
    assert fast.asked == []  # waits: the task is not stopped for it
    slow.gate.set()
    assert (await one).reason is BurstReason.FINISHED
    assert (await two).reason is BurstReason.FINISHED


async def test_an_engine_that_is_away_is_waited_for_and_nothing_is_charged(parts: Parts, tenant_id: str) -> None:
    away = LonghaulError(ErrorCode.ENGINE_UNAVAILABLE, "down", retry_after_s=7)
    model = ScriptedModel({"1/1/m1": away})
    scene = await new_scene(parts, tenant_id, model)
    for _ in range(2):
        end = await scene.burst()
        assert (end.reason, end.retry_after_s) == (BurstReason.ENGINE_UNAVAILABLE, 7)
    task = await scene.row(tables.tasks)
    assert (task.reserved_tokens, task.prompt_tokens) == (0, 0)
    agent = await scene.row(tables.agents)
    assert (agent.state, agent.activity) == ("waiting", "waiting for the engine: down")
    assert [e.data.detail for e in await scene.events() if e.data.type == "agent.waiting"] == ["down"]  # told once
    end = await scene.burst(model=ScriptedModel([FINISH]))
    assert end.reason is BurstReason.FINISHED
    assert (await scene.count())["model.called"] == 1


async def test_a_task_shows_that_it_waits_and_goes_on(parts: Parts, tenant_id: str) -> None:
    away = LonghaulError(ErrorCode.ENGINE_UNAVAILABLE, "down")
    scene = await new_scene(parts, tenant_id, ScriptedModel({"1/1/m1": away}))
    await scene.set_task(status="running")
    await scene.burst()
    task = await scene.row(tables.tasks)
    assert (task.status, task.waiting_for) == ("waiting", "engine")
    await scene.burst(model=ScriptedModel([FINISH]))
    task = await scene.row(tables.tasks)
    assert (task.status, task.waiting_for) == ("running", None)
    statuses = [e.data.status for e in await scene.events() if e.data.type == "task.status"]
    assert statuses == ["waiting", "running"]


@pytest.mark.parametrize("code", [ErrorCode.ENGINE_REFUSED, ErrorCode.REPLAY_MISMATCH, ErrorCode.REPLAY_NOT_RECORDED])
async def test_an_engine_that_refuses_ends_the_round_in_its_own_words(
    parts: Parts, tenant_id: str, code: ErrorCode
) -> None:
    scene = await new_scene(parts, tenant_id, ScriptedModel({"1/1/m1": LonghaulError(code, "because of that")}))
    end = await scene.burst()
    assert end.reason is BurstReason.FAILED
    assert end.error is not None
    assert (end.error.code, end.error.detail) == (code, "because of that")
    assert await scene.burst() == end
    assert (await scene.row(tables.tasks)).reserved_tokens == 0


async def test_turns_without_a_usable_reply_end_the_round(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel({f"1/{n}/m{k}": NOTHING_SAID for n in range(1, 5) for k in range(1, 4)})
    scene = await new_scene(parts, tenant_id, model)
    end = await scene.burst()
    assert end.reason is BurstReason.FAILED
    assert end.error is not None
    assert end.error.code is ErrorCode.EMPTY_REPLY
    told = await scene.count()
    assert (told["turn.failed"], told["turn.started"]) == (3, 3)
    assert len(model.asked) <= 9


async def test_going_round_in_circles_ends_the_round(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([says(("read_file", {"path": "missing"})) for _ in range(20)])
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    end = await scene.burst()
    assert end.reason is BurstReason.NO_PROGRESS
    assert len(model.asked) < 10


async def test_giving_up(parts: Parts, tenant_id: str) -> None:
    scene = await new_scene(parts, tenant_id, ScriptedModel([says(("give_up", {"reason": "cannot"}))]))
    assert (await scene.burst()).reason is BurstReason.GAVE_UP
    assert (await scene.row(tables.rounds)).outcome == {"reason": "cannot"}


async def test_a_lost_sandbox_that_no_row_names_is_no_observation(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([shell("true"), shell("true"), FINISH])
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    scene.rules = replace(scene.rules, turns=1)
    assert (await scene.burst()).reason is BurstReason.LIMIT
    assert scene.sandbox_id
    await parts.runner.destroy(scene.sandbox_id)
    end = await scene.burst()
    assert end.reason is BurstReason.SANDBOX_LOST
    told = await scene.count()
    assert (told["agent.finished"], told["tool.failed"]) == (1, 0)


async def test_a_cancel_aborts_the_model_call_at_once(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([FINISH])
    model.gate = asyncio.Event()
    scene = await new_scene(parts, tenant_id, model)
    running = asyncio.create_task(scene.burst())
    await until(lambda: model.under_way == 1)
    begun = parts.clock.monotonic()
    await scene.cancel()
    assert (await running).reason is BurstReason.CANCELLED
    assert parts.clock.monotonic() - begun < 2.0
    assert (await scene.row(tables.tasks)).reserved_tokens == 0


async def test_a_cancel_kills_the_command_at_once(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([shell("echo begin >> log; sleep 60; echo end >> log", timeout_s=100), FINISH])
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    running = asyncio.create_task(scene.burst())
    await until(lambda: _told(scene, "tool.called"))
    await asyncio.sleep(0.5)
    await scene.cancel()
    assert (await asyncio.wait_for(running, 10)).reason is BurstReason.CANCELLED
    assert len(model.asked) == 1
    assert "sleep 60" not in await scene.shell("cat /proc/*/cmdline | tr '\\0' ' '")
    assert (await scene.row(tables.agents)).state == "finished"
