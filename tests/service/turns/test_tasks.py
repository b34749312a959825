"""Whole tasks on real Temporal, PostgreSQL, S3, NATS and the runner."""

import asyncio
import secrets

import pytest
from temporalio.client import Client, WorkflowExecutionStatus

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.event import StepFailed
from agents.contracts.task import Limits, StopReason
from services.settings import Settings
from tests.support.scripts import ScriptedModel, says
from tests.support.team import Team, connect, finish, plan, review, working
from tests.support.turns import Parts, new_task, until

NAMESPACE = "test-" + secrets.token_hex(4)


@pytest.fixture
async def client(servers: Settings) -> Client:
    """A namespace of this module's own."""
    return await connect(servers, NAMESPACE)


async def assert_nothing_left(team: Team, task: object) -> None:
    """No sandbox, no child workflow, no call afterwards."""
    boxes = await team.sandboxes(task)  # type: ignore[arg-type]
    assert all(box.state == "gone" for box in boxes)
    for box in boxes:
        with pytest.raises(LonghaulError):
            await team.parts.runner.list_files(box.id, 1)
    asked = len(team.model.asked)
    await asyncio.sleep(0.5)
    assert len(team.model.asked) == asked
    task_id = task.task_id  # type: ignore[attr-defined]
    prefix = f"agent/{task_id}"
    async for run in team.client.list_workflows(f"WorkflowId STARTS_WITH '{prefix}'"):
        assert run.status is not WorkflowExecutionStatus.RUNNING, run.id


async def test_two_steps_side_by_side_then_the_final_review(parts: Parts, client: Client, tenant_id: str) -> None:
    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("one", "two"),
            "executor/1.one/1/1/m1": says(("shell", {"command": "mkdir -p one && echo 1 > one/f"})),
            "executor/1.one/1/2/m1": finish("one is there"),
            "executor/1.two/1/1/m1": says(("write_file", {"path": "two/f", "content": "2"})),
            "executor/1.two/1/2/m1": finish("two is there"),
            "reviewer/1.one/1/1/m1": review("approve"),
            "reviewer/1.two/1/1/m1": review("approve"),
            "reviewer/1.final/1/1/m1": review("approve"),
        }
    )
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(), checks=["cat one/f two/f"])
        end = await (await team.start(task)).result()
        assert end.stop_reason is StopReason.COMPLETED, end
        told = await team.types(task)
        assert told[0] == "task.started"
        assert told[-1] == "task.completed"
        assert told.count("step.completed") == 2
        assert told.count("review.submitted") == 3
        assert told.count("checkpoint.created") == 2
        row = await team.row(task)
        assert (row.status, row.stop_reason, row.turns) == ("completed", "completed", 8)
        assert "one is there" in row.summary
        final = next(r for r in model.asked if r.coordinate.startswith("reviewer/1.final"))
        assert any("cat one/f two/f" in m.content for m in final.messages)
        await assert_nothing_left(team, task)


async def test_findings_go_to_the_same_executor(parts: Parts, client: Client, tenant_id: str) -> None:
    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("only"),
            "executor/1.only/1/1/m1": finish("first try"),
            "reviewer/1.only/1/1/m1": review("revise", "the greeting is missing"),
            "executor/1.only/2/1/m1": says(("write_file", {"path": "hello", "content": "hello"})),
            "executor/1.only/2/2/m1": finish("second try"),
            "reviewer/1.only/2/1/m1": review("approve"),
        }
    )
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(), checks=["true"])
        assert (await (await team.start(task)).result()).stop_reason is StopReason.COMPLETED
        again = next(r for r in model.asked if r.coordinate == "executor/1.only/2/1/m1")
        words = "\n".join(message.content for message in again.messages)
        assert "the greeting is missing" in words
        first = next(r for r in model.asked if r.coordinate == "executor/1.only/1/1/m1")
        head = len(first.messages) - 1  # without its scratch
        assert again.messages[:head] == first.messages[:head]  # the same trajectory goes on
        assert (await team.types(task)).count("step.started") == 2


@pytest.mark.parametrize(
    ("checks", "verdicts", "reason"),
    [
        (["false"], ["approve", "revise"], StopReason.FAILED_CHECKS),
        ([], ["revise"], StopReason.REJECTED),
    ],
)
async def test_nothing_completes_without_its_checks(
    parts: Parts, client: Client, tenant_id: str, checks: list[str], verdicts: list[str], reason: StopReason
) -> None:
    lines = {f"reviewer/1.only/1/{n}/m1": review(v, "not yet") for n, v in enumerate(verdicts, start=1)}
    model = ScriptedModel({"planner/1.plan/1/1/m1": plan("only"), "executor/1.only/1/1/m1": finish(), **lines})
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(review_rounds=1), checks=checks)
        assert (await (await team.start(task)).result()).stop_reason is reason
        assert (await team.row(task)).status == "failed"
        assert (await team.types(task))[-1] == "task.failed"


async def test_a_step_that_the_final_review_rejects_has_failed(parts: Parts, client: Client, tenant_id: str) -> None:
    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("one", "two", two={"depends_on": ["one"]}),
            "executor/1.one/1/1/m1": finish("one"),
            "reviewer/1.one/1/1/m1": review("approve"),
            "executor/1.two/1/1/m1": finish("two"),
            "reviewer/1.two/1/1/m1": review("approve"),
            "reviewer/1.final/1/1/m1": review("revise", "two is not enough"),
            "executor/1.two/2/1/m1": finish("two again"),
            "reviewer/1.final/2/1/m1": review("revise", "still not"),
        }
    )
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(review_rounds=2))
        assert (await (await team.start(task)).result()).stop_reason is StopReason.REJECTED
        assert await team.steps(task) == {"one": "completed", "two": "failed"}
        [failed] = [e.data for e in await team.events(task) if isinstance(e.data, StepFailed)]
        assert (failed.round, failed.stop_reason) == (2, StopReason.REJECTED)


async def test_a_replan_keeps_what_is_done(parts: Parts, client: Client, tenant_id: str) -> None:
    first = plan("a", "b", b={"depends_on": ["a"]})
    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": first,
            "executor/1.a/1/1/m1": finish("a done"),
            "reviewer/1.a/1/1/m1": review("approve"),
            "executor/1.b/1/1/m1": finish("b done"),
            "reviewer/1.b/1/1/m1": review("replan", "b is not enough"),
            "planner/1.plan/2/1/m1": plan("a", "c", c={"depends_on": ["a"]}),
            "executor/2.c/1/1/m1": finish("c done"),
            "reviewer/2.c/1/1/m1": review("approve"),
            "reviewer/2.final/1/1/m1": review("approve"),
        }
    )
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits())
        assert (await (await team.start(task)).result()).stop_reason is StopReason.COMPLETED
        told = await team.types(task)
        assert (told.count("plan.submitted"), told.count("plan.revised")) == (1, 1)
        again = next(r for r in model.asked if r.coordinate == "planner/1.plan/2/1/m1")
        assert any("b is not enough" in message.content for message in again.messages)


async def test_a_replan_to_a_step_that_is_done_still_has_its_final_review(
    parts: Parts, client: Client, tenant_id: str
) -> None:
    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("a", "b", b={"depends_on": ["a"]}),
            "executor/1.a/1/1/m1": finish("a done"),
            "reviewer/1.a/1/1/m1": review("approve"),
            "executor/1.b/1/1/m1": finish("b done"),
            "reviewer/1.b/1/1/m1": review("replan", "b is not needed"),
            "planner/1.plan/2/1/m1": plan("a"),
            "reviewer/2.final/1/1/m1": review("approve"),
        }
    )
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(), checks=["true"])
        assert (await (await team.start(task)).result()).stop_reason is StopReason.COMPLETED
        assert "reviewer/2.final/1/1/m1" in [request.coordinate for request in model.asked]


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.15, 0.3, 0.6, 1.0, 1.5])
async def test_a_cancel_at_any_moment_leaves_nothing(
    parts: Parts, client: Client, tenant_id: str, after_s: float
) -> None:
    long = says(("shell", {"command": "sleep 100", "timeout_s": 200}))
    model = ScriptedModel({"planner/1.plan/1/1/m1": plan("only"), "executor/1.only/1/1/m1": long})
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits())
        handle = await team.start(task)
        await asyncio.sleep(after_s)
        await team.cancel(task, handle)
        end = await asyncio.wait_for(handle.result(), 30)
        assert end.stop_reason is StopReason.CANCELLED
        row = await team.row(task)
        assert (row.status, row.reserved_tokens) == ("cancelled", 0)
        assert set((await team.steps(task)).values()) <= {"pending", "failed"}
        assert (await team.types(task))[-1] == "task.cancelled"
        await assert_nothing_left(team, task)


async def test_the_deadline_ends_a_task(parts: Parts, client: Client, tenant_id: str) -> None:
    model = ScriptedModel({"planner/1.plan/1/1/m1": plan("only")})
    model.gate = asyncio.Event()
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(wall_s=3))
        end = await asyncio.wait_for((await team.start(task)).result(), 30)
        assert end.stop_reason is StopReason.DEADLINE
        assert end.error is not None
        assert end.error.code is ErrorCode.DEADLINE_EXCEEDED
        await assert_nothing_left(team, task)


async def test_an_outage_of_the_engine_is_slept_through(parts: Parts, client: Client, tenant_id: str) -> None:
    model = ScriptedModel({"planner/1.plan/1/1/m1": LonghaulError(ErrorCode.ENGINE_UNAVAILABLE, "down")})
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(review_rounds=1))
        handle = await team.start(task)

        async def waits() -> bool:
            return bool((await team.row(task)).status == "waiting")

        await until(waits, 20)
        assert (await team.row(task)).waiting_for == "engine"
        model.say("planner/1.plan/1/1/m1", plan("only"))
        model.say("executor/1.only/1/1/m1", finish())
        model.say("reviewer/1.only/1/1/m1", review("approve"))
        assert (await asyncio.wait_for(handle.result(), 40)).stop_reason is StopReason.COMPLETED
        assert (await team.types(task)).count("agent.waiting") == 1


async def test_a_template_that_is_not_there_any_more_ends_the_task_by_its_code(
    parts: Parts, client: Client, tenant_id: str
) -> None:
    model = ScriptedModel({})
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(), template="vanished")
        end = await asyncio.wait_for((await team.start(task)).result(), 40)
        assert end.stop_reason is StopReason.ERROR
        assert end.error is not None
        assert end.error.code is ErrorCode.TEMPLATE_NOT_FOUND
        assert "there is no template vanished here; there are: default" in end.error.detail
        assert not model.asked
        await assert_nothing_left(team, task)


async def test_a_check_may_say_anything(parts: Parts, client: Client, tenant_id: str) -> None:
    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("only"),
            "executor/1.only/1/1/m1": finish(),
            "reviewer/1.only/1/1/m1": review("approve"),
        }
    )
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(), checks=["printf 'a\\000b\\377c'"])
        end = await (await team.start(task)).result()
        assert end.stop_reason is StopReason.COMPLETED, end
        [said] = [e.data.output for e in await team.events(task) if e.data.type == "exec.exited"]
        assert said == "a\ufffdb\ufffdc"
