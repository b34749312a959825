"""The rules of the turn ledger that crashes alone do not show, on real parts; numbered as in docs/decisions/0003."""

import asyncio
import inspect
from dataclasses import replace
from typing import Any

import pytest

from agents.contracts.errors import ErrorCode, Fenced, LonghaulError
from agents.contracts.ids import Role
from agents.contracts.run import BurstReason
from agents.contracts.sandbox import ExecRequest, ExecState, ExecStatus, Owner
from services.mailbox.link import connect
from services.store import tables
from services.worker.tools import SandboxBench
from tests.support.mortal import Life, Mortal
from tests.support.scripts import Line, ScriptedModel, place_in, says
from tests.support.stack import Stack
from tests.support.turns import Parts, new_scene, until

FINISH = says(("finish_step", {"summary": "done"}))
APPROVE = says(("submit_review", {"verdict": "approve"}))


def shell(command: str, **more: object) -> Any:
    return says(("shell", {"command": command, **more}))


async def test_1_an_older_attempt_cannot_write(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([FINISH])
    model.gate = asyncio.Event()
    scene = await new_scene(parts, tenant_id, model)
    older = asyncio.create_task(scene.burst())
    await until(lambda: model.under_way == 1)
    newer = asyncio.create_task(scene.burst())
    await until(lambda: model.under_way == 2)
    model.gate.set()
    with pytest.raises(Fenced):
        await older
    assert (await newer).reason is BurstReason.FINISHED
    assert (await scene.row(tables.agents)).fence == 2
    assert (await scene.count())["model.completed"] == 1
    await scene.burst()
    assert (await scene.row(tables.agents)).fence == 2  # refused once the round is over


async def test_2_the_fence_is_announced_before_the_ledger_is_read(parts: Parts, tenant_id: str) -> None:
    scene = await new_scene(parts, tenant_id, ScriptedModel([FINISH]), sandbox=True)
    life = Life()
    ports = replace(
        scene.ports, ledger=Mortal(scene.ports.ledger, life, "ledger"), runner=Mortal(parts.runner, life, "runner")
    )
    await scene.burst(**vars(ports))
    order = [where.removeprefix("before ") for where in life.where if where.startswith("before")]
    assert order[:3] == ["ledger.open", "runner.announce", "ledger.load"]
    owner = Owner(agent_id=scene.ref.place.agent_id, agent_fence=0, sandbox_fence=1)
    late = ExecRequest(exec_id="exec_late", key="late", owner=owner, command="true")
    assert scene.sandbox_id
    with pytest.raises(Fenced):
        await parts.runner.exec(scene.sandbox_id, late)


async def test_3_keys_name_the_place_and_k_grows_after_a_bad_reply(parts: Parts, tenant_id: str) -> None:
    script = {"1/1/m1": says(text="hm", finish="stop"), "1/1/m2": shell("true"), "1/2/m1": FINISH}
    model = ScriptedModel(script)
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    await scene.burst()
    stem = scene.ref.place.path
    assert [row.key for row in await scene.rows(tables.model_calls)] == [
        f"{stem}/1/1/m1",
        f"{stem}/1/1/m2",
        f"{stem}/1/2/m1",
    ]
    assert [row.key for row in await scene.rows(tables.tool_calls)] == [f"{stem}/1/1/c0", f"{stem}/1/2/c0"]
    assert model.asked[1].coordinate == "executor/1.s1/1/1/m2"
    assert model.asked[1].temperature != model.asked[0].temperature  # something changes
    digests = [row.request_sha256 for row in await scene.rows(tables.model_calls)]
    assert digests == [asked.request_sha256 for asked in model.asked]
    assert len({*digests, None}) == 4
    told = await scene.count()
    assert (told["model.failed"], told["model.completed"], told["turn.completed"]) == (1, 2, 2)


class Forgetful:
    """A ledger whose answers are lost, each once; `does` says whether the transaction was committed."""

    def __init__(self, ledger: Any, does: bool) -> None:
        self._ledger = ledger
        self._does = does
        self._lost: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._ledger, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any) -> Any:
            keyed = ("begin", "answer", "start", "keep", "ask", "end")
            key = f"{name} {args[1]}" if name in keyed else name
            if key in self._lost:
                return await method(*args)
            self._lost.add(key)
            if self._does:
                await method(*args)
            raise LonghaulError(ErrorCode.STORE_UNAVAILABLE, "the connection broke")

        return call


@pytest.mark.parametrize("committed", [True, False])
async def test_4_a_lost_commit_reply_is_found_again(parts: Parts, tenant_id: str, committed: bool) -> None:
    script = {
        "1/1/m1": shell("echo once >> log"),
        "1/2/m1": says(("shell", {"command": "true"}), ("read_file", {"path": "log"})),
        "1/3/m1": says(text="no call", finish="stop"),
        "1/3/m2": FINISH,
    }
    model = ScriptedModel(script)
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    end = await scene.burst(ledger=Forgetful(parts.ledger, committed))
    assert end.reason is BurstReason.FINISHED
    assert [place_in(r) for r in model.asked] == ["1/1/m1", "1/2/m1", "1/3/m1", "1/3/m2"]
    assert await scene.shell("cat log") == "once\n"
    told = await scene.count()
    assert (told["turn.started"], told["turn.completed"], told["tool.called"], told["agent.finished"]) == (3, 3, 4, 1)
    task = await scene.row(tables.tasks)
    assert (task.turns, task.prompt_tokens, task.reserved_tokens) == (3, 40, 0)


async def test_6_deltas_carry_key_and_fence(parts: Parts, tenant_id: str, stack: Stack) -> None:
    scene = await new_scene(parts, tenant_id, ScriptedModel([FINISH]))
    got: list[bytes] = []
    subject = f"lh.v1.live.{tenant_id}.{scene.ref.place.task_id}.{scene.ref.place.agent_id}.tok"
    reader = await connect(stack.settings("api"), "reader")
    await reader.subscribe(subject, lambda _, body: got.append(body))
    await scene.burst()
    await until(lambda: bool(got))
    await reader.close()
    assert f'"key":"{scene.ref.place.path}/1/1/m1"'.encode() in got[0]
    assert b'"fence":1' in got[0]


async def test_8_a_message_that_comes_during_the_last_call_is_read(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([FINISH, FINISH])
    model.gate = asyncio.Event()
    scene = await new_scene(parts, tenant_id, model)
    running = asyncio.create_task(scene.burst())
    await until(lambda: model.under_way == 1)
    await scene.mail("please also say goodbye")
    model.gate.set()
    assert (await running).reason is BurstReason.FINISHED
    assert len(model.asked) == 2
    assert any("say goodbye" in message.content for message in model.asked[1].messages)
    assert not any("say goodbye" in message.content for message in model.asked[0].messages)
    told = await scene.count()
    assert (told["message.delivered"], told["steer.applied"], told["agent.finished"]) == (1, 1, 1)
    first, second = await scene.rows(tables.turns)
    assert [m["text"] for m in second.inputs["mail"]] == ["please also say goodbye"]
    assert first.inputs["mail"] == []


async def test_9_reads_overlap_writes_do_not_and_a_control_call_stands_alone(parts: Parts, tenant_id: str) -> None:
    slow = ("shell", {"command": "sleep 0.3; echo $(date +%s%N) >> order; echo a >> order"})
    script: list[Line] = [
        says(slow, ("shell", {"command": "echo b >> order"}), ("read_file", {"path": "order"})),
        says(("finish_step", {"summary": "no"}), ("read_file", {"path": "order"})),
        FINISH,
    ]
    scene = await new_scene(parts, tenant_id, ScriptedModel(script), sandbox=True)
    assert (await scene.burst()).reason is BurstReason.FINISHED
    assert (await scene.shell("cat order")).split()[1:] == ["a", "b"]
    calls = await scene.rows(tables.tool_calls)
    assert "b" in calls[2].result["content"]  # the read came after both writes
    assert calls[3].result["error_code"] == "CONTROL_CALL_NOT_ALONE"
    assert calls[4].result.get("error_code") is None


async def test_10_a_burst_that_ends_between_turns_keeps_its_result(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([shell("echo hi"), FINISH])
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    scene.rules = replace(scene.rules, turns=1)
    assert (await scene.burst()).reason is BurstReason.LIMIT
    call = await scene.row(tables.tool_calls)
    assert "hi" in call.result["content"]
    assert (await scene.count())["turn.completed"] == 1
    assert (await scene.burst()).reason is BurstReason.FINISHED
    assert len(model.asked) == 2


async def test_11_the_end_is_answered_again_from_the_ledger(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([APPROVE])
    scene = await new_scene(parts, tenant_id, model, role=Role.REVIEWER)
    first = await scene.burst()
    assert (first.reason, first.verdict) == (BurstReason.FINISHED, "approve")
    assert await scene.burst() == first
    assert len(model.asked) == 1


async def test_12_controls_are_read_before_every_turn(parts: Parts, tenant_id: str) -> None:
    scene = await new_scene(parts, tenant_id, ScriptedModel([FINISH]))
    await scene.set_task(control_seq=7, cancel_requested_at=parts.clock.now())
    end = await scene.burst()
    assert (end.reason, end.control_seq) == (BurstReason.CANCELLED, 7)
    assert (await scene.count())["model.called"] == 0


async def test_13_agents_of_one_task_number_their_events_without_gaps(parts: Parts, tenant_id: str) -> None:
    replies = [shell("true") for _ in range(4)] + [FINISH]
    first = await new_scene(parts, tenant_id, ScriptedModel(replies), sandbox=True)
    others = [
        await new_scene(
            parts, tenant_id, ScriptedModel(replies), task=first.task, step=f"s{n}", in_sandbox=first.sandbox_id
        )
        for n in range(2, 5)
    ]
    ends = await asyncio.gather(*(scene.burst() for scene in [first, *others]))
    assert {end.reason for end in ends} == {BurstReason.FINISHED}
    told = await first.events()  # asserts 1..n
    assert len([e for e in told if e.data.type == "turn.completed"]) == 20
    assert (await first.row(tables.tasks)).turns == 20


async def test_14_a_shutdown_leaves_a_long_command_running(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([shell("echo begin >> log; sleep 4; echo end >> log", timeout_s=60), FINISH])
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    running = asyncio.create_task(scene.burst())
    await until(lambda: _has(scene, "tool.called"))
    scene.drain.set_result(None)
    assert (await running).reason is BurstReason.DRAIN
    scene.drain = type(scene.drain)()
    assert (await scene.burst()).reason is BurstReason.FINISHED
    assert await scene.shell("cat log") == "begin\nend\n"
    assert len(model.asked) == 2


async def test_14_waiting_for_a_command_is_not_the_bursts_own_time(parts: Parts, tenant_id: str) -> None:
    scene = await new_scene(parts, tenant_id, ScriptedModel([shell("sleep 1.5"), FINISH]), sandbox=True)
    scene.rules = replace(scene.rules, own_s=1.2)
    clocked = await scene.burst()
    assert clocked.reason is BurstReason.FINISHED


class LosingRunner:
    """A runner whose commands are lost: it cannot say how they ended."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    async def exec(self, sandbox_id: str, request: ExecRequest) -> ExecStatus:
        """Run it, and forget how it ended."""
        status = await self._runner.exec(sandbox_id, request)
        lost: ExecStatus = status.model_copy(update={"state": ExecState.LOST, "reason": "lost", "exit_code": None})
        return lost


async def test_15_an_unknown_outcome_is_told_as_such(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel([shell("true"), FINISH])
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    bench = SandboxBench(LosingRunner(parts.runner), parts.objects, parts.clock, parts.post)
    assert (await scene.burst(bench=bench)).reason is BurstReason.FINISHED
    calls = await scene.rows(tables.tool_calls)
    assert calls[0].result["error_code"] == "EXEC_OUTCOME_UNKNOWN"
    told = await scene.count()
    assert (told["exec.lost"], told["tool.unknown"]) == (1, 1)


async def _has(scene: Any, kind: str) -> bool:
    return bool((await scene.count())[kind])
