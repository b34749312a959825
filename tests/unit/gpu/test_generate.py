"""Generated runs: only by name, the same at every try, and only as long as the commands succeed."""

import json
from typing import Any

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.ids import Role
from agents.contracts.model import ModelReply, Usage
from agents.contracts.plan import Plan, plan_problems
from agents.contracts.recording import SpokenCall
from agents.contracts.run import PlanShape, StepShape
from agents.contracts.tool import ToolCall, ToolResult, render_observation
from agents.policy.parallel import ready
from agents.tools.parse import check_reply
from gpu.engine import generate


def body(exit_code: int | None = None) -> dict[str, Any]:
    seen = [] if exit_code is None else [ToolResult(tool="shell", content="", exit_code=exit_code)]
    return {"messages": [{"role": "tool", "content": render_observation(result)} for result in seen]}


def said(call: str, exit_code: int | None = None, count: int = 3, steps: int = 1) -> SpokenCall:
    [spoken] = generate.entry(generate.Shape(count, steps), call, body(exit_code)).reply.tool_calls
    return spoken


@pytest.mark.parametrize(
    "name", [None, "", "code_repair", "generate", "generate:0", "generate:x", "generate:2x", "generate:2x51"]
)
def test_only_its_own_names_generate(name: str | None) -> None:
    assert generate.shape(name) is None


def test_a_run_is_so_many_different_commands_and_the_end() -> None:
    assert generate.shape("generate:2000") == generate.Shape(turns=2000)
    commands = [said(f"executor/1.long/1/{turn}/m1", 0 if turn > 1 else None) for turn in (1, 2, 3)]
    assert [c.arguments["command"] for c in commands] == ["true 1", "true 2", "true 3"]
    assert said("executor/1.long/1/4/m1", 0).name == "finish_step"
    assert said("executor/1.long/2/1/m1").name == "finish_step", "a later round hands in at once"
    assert said("executor/1.long/1/2/m3", 0) == commands[1], "a call asked again is answered the same"


def test_steps_that_are_asked_for_may_all_run_side_by_side() -> None:
    assert generate.shape("generate:2x32") == generate.Shape(turns=2, steps=32)
    plan = Plan.model_validate(said("planner/1.plan/1/1/m1", steps=32).arguments)
    assert plan_problems(plan) == []
    shape = PlanShape(revision=1, steps=tuple(StepShape.model_validate(step.model_dump()) for step in plan.steps))
    assert len(ready(shape, set(), set(), 32)) == 32


@pytest.mark.parametrize("role", ["planner", "executor", "reviewer"])
def test_every_reply_is_one_that_its_role_may_give(role: str) -> None:
    for turn in (1, 2):
        spoken = said(f"{role}/1.long/1/{turn}/m1", 0 if turn > 1 else None, count=1)
        call = ToolCall(id="1", name=spoken.name, arguments=json.dumps(spoken.arguments))
        reply = ModelReply(
            text="", tool_calls=(call,), finish_reason="tool_calls", usage=Usage(), model="m", tier="replay"
        )
        checked = check_reply(Role(role), reply, False)
        assert checked.bad is None
        assert [c.refusal for c in checked.calls] == [None]


def test_a_command_that_failed_is_a_mismatch() -> None:
    with pytest.raises(LonghaulError) as caught:
        said("executor/1.long/1/2/m1", 1)
    assert caught.value.code == ErrorCode.REPLAY_MISMATCH
    assert '"exit_code": 1' in caught.value.detail


def test_what_has_no_coordinate_has_no_reply() -> None:
    with pytest.raises(LonghaulError) as caught:
        said("executor")
    assert caught.value.code == ErrorCode.REPLAY_NOT_RECORDED
