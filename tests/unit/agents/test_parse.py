"""From a reply to calls: what is unusable, what is refused, what may run."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Role
from agents.contracts.plan import Plan
from agents.contracts.tool import ToolCall
from agents.tools.arguments import NotAnObject, parse_object, unique_ids, wire_arguments
from agents.tools.finish_step import FinishStep
from agents.tools.parse import ABSURD_CALLS, MAX_CALLS, CheckedReply, batches, check_reply
from agents.tools.shell import Shell
from tests.unit.agents import make

E = ErrorCode
READ = make.call("read_file", {"path": "a"})
WRITE = make.call("write_file", {"path": "a", "content": ""})
FINISH = make.call("finish_step", {"summary": "done", "evidence": ["pytest: 3 passed"], "artifacts": []})


def check(*calls: ToolCall, role: Role = Role.EXECUTOR, failed_checks: bool = False, **more: Any) -> CheckedReply:
    return check_reply(role, make.reply(*calls, **more), failed_checks)


def refusals(checked: CheckedReply) -> list[ErrorCode | None]:
    assert checked.bad is None
    return [c.refusal.error_code if c.refusal else None for c in checked.calls]


def refusal(checked: CheckedReply) -> tuple[ErrorCode | None, str]:
    (only,) = checked.calls
    assert only.refusal is not None
    assert only.tool is None
    assert only.arguments is None
    assert not only.control
    return only.refusal.error_code, only.refusal.content


@pytest.mark.parametrize(
    ("finish", "code"),
    [
        ("length", E.REPLY_TRUNCATED),
        ("max_tokens", E.REPLY_TRUNCATED),
        ("content_filter", E.REFUSED),
        ("refusal", E.REFUSED),
        ("abort", E.REPLY_ABORTED),
        ("error", E.REPLY_ABORTED),
    ],
)
@pytest.mark.parametrize("calls", [(), (make.call(),), (FINISH,)])
def test_an_unusable_finish_is_never_executed_even_if_its_calls_parse(
    finish: str, code: ErrorCode, calls: tuple[ToolCall, ...]
) -> None:
    checked = check(*calls, finish=finish)
    assert checked.bad is not None
    assert checked.bad.code is code
    assert checked.calls == ()


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call", "end_turn", ""])
def test_any_other_finish_is_judged_by_what_is_there(finish: str) -> None:
    assert check(make.call(), finish=finish).bad is None
    for text, code in (("", E.EMPTY_REPLY), (" \n", E.EMPTY_REPLY), ("I would look", E.NO_TOOL_CALL)):
        checked = check(text=text, finish=finish)
        assert checked.bad is not None
        assert checked.bad.code is code


@pytest.mark.parametrize(
    "arguments",
    [
        "", "  ", "{", '{"command": "ls"', "null", "[]", '"ls"', "7", '{"command": "ls"} trailing', "{'command': 'ls'}",
        '{"command": "a", "command": "b"}', '{"command": NaN}', '{"command": "\\ud800"}', "[" * 100_000, "1" * 5_000,
    ],
)  # fmt: skip
def test_arguments_that_are_no_json_object_spoil_the_whole_reply(arguments: str) -> None:
    checked = check(READ, make.call(arguments=arguments))
    assert checked.bad is not None
    assert checked.bad.code is E.UNPARSABLE_CALL
    assert len(checked.bad.detail) < 500
    assert "shell" in checked.bad.detail


def test_a_name_that_no_api_would_take_back_spoils_the_whole_reply() -> None:
    for name in ("", "a b", "x" * 65, "shell\n"):
        checked = check(make.call(name))
        assert checked.bad is not None
        assert checked.bad.code is E.UNPARSABLE_CALL


def test_raw_control_characters_inside_strings_are_accepted() -> None:
    (one,) = check(make.call(arguments='{"command": "a\nb\tc"}')).calls
    assert one.arguments == Shell(command="a\nb\tc")


def test_null_means_not_given() -> None:
    (one,) = check(make.call(arguments={"command": "ls", "timeout_s": None})).calls
    assert one.arguments == Shell(command="ls")
    code, said = refusal(check(make.call(arguments={"command": None})))
    assert code is E.INVALID_ARGUMENTS
    assert "command: Field required" in said


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("shell", {"command": "ls", "cwd": "/"}, "cwd: Extra inputs"),
        ("shell", {"command": 7}, "command: Input should be a valid string"),
        ("shell", {"command": ""}, "at least 1 character"),
        ("shell", {"command": "a\x00b"}, "pattern"),
        ("shell", {"command": "ls", "timeout_s": "60"}, "timeout_s: Input should be a valid number"),
        ("shell", {"command": "ls", "timeout_s": True}, "timeout_s"),
        ("shell", {"command": "ls", "timeout_s": 0}, "greater than 0"),
        ("shell", {"command": "ls", "timeout_s": 3_601}, "3600"),
        ("read_file", {"path": "a", "offset": 0}, "offset"),
        ("read_file", {"path": "a", "limit": 1.5}, "limit"),
        ("read_file", {"path": ""}, "path"),
        ("edit_file", {"path": "a", "old": "", "new": "b"}, "old"),
        ("save_artifact", {"path": "a", "media_type": "png"}, "media_type"),
        ("finish_step", {"evidence": []}, "summary: Field required"),
        ("give_up", {}, "{reason}"),
        ("finish_step", {"summary": "s", "evidence": ["e" * 2_000] * 7}, "at most 12288"),
    ],
)
def test_wrong_arguments_are_refused_and_named(name: str, arguments: dict[str, Any], words: str) -> None:
    code, said = refusal(check(make.call(name, arguments)))
    assert code is E.INVALID_ARGUMENTS
    assert words in said
    assert "Nothing was run" in said


def test_many_wrong_fields_stay_a_short_message() -> None:
    _, said = refusal(check(make.call("shell", {f"field{n}": n for n in range(500)})))
    assert len(said) < 2_000
    assert "more" in said


def test_unknown_and_forbidden_tools_are_refused_with_what_there_is() -> None:
    code, said = refusal(check(make.call("bash", "")))
    assert code is E.UNKNOWN_TOOL
    assert "shell" in said
    code, said = refusal(check(WRITE, role=Role.REVIEWER))
    assert code is E.TOOL_NOT_ALLOWED
    assert "submit_review" in said
    assert "write_file is not for the reviewer" in said
    assert refusals(check(make.call(), role=Role.PLANNER)) == [E.TOOL_NOT_ALLOWED]


def test_a_control_call_alone_is_sound() -> None:
    (one,) = check(FINISH).calls
    assert one.control
    assert isinstance(one.arguments, FinishStep)
    assert one.refusal is None


def test_control_calls_among_others_are_refused_and_the_work_runs() -> None:
    checked = check(READ, FINISH, WRITE, make.call("give_up", {"reason": "no"}))
    assert refusals(checked) == [None, E.CONTROL_CALL_NOT_ALONE, None, E.CONTROL_CALL_NOT_ALONE]
    assert [[c.index for c in batch] for batch in batches(checked.calls)] == [[0], [2]]
    assert refusals(check(FINISH, FINISH)) == [E.CONTROL_CALL_NOT_ALONE] * 2


def test_a_surplus_of_calls_is_refused_and_an_absurd_number_is_noise() -> None:
    codes = refusals(check(*[READ] * (MAX_CALLS + 2)))
    assert codes == [None] * MAX_CALLS + [E.TOOL_NOT_ALLOWED] * 2
    absurd = check(*[READ] * (ABSURD_CALLS + 1))
    assert absurd.bad is not None
    assert absurd.bad.code is E.UNPARSABLE_CALL


def test_ids_are_made_unique_the_same_way_each_time() -> None:
    calls = [make.call(call_id=i) for i in ("a", "a", "", "", "a_2", "b")]
    first = [c.call.id for c in check(*calls).calls]
    assert len(set(first)) == 6
    assert all(first)
    assert first == [c.call.id for c in check(*calls).calls]
    assert first[0] == "a"
    assert first[5] == "b"


@given(st.lists(st.lists(st.sampled_from(["", "a", "a_1", "a_2", "call_1", "call_3"]), max_size=6), max_size=8))
def test_ids_are_unique_over_a_whole_trajectory(turns: list[list[str]]) -> None:
    seen: set[str] = set()
    ids = [c.id for turn in turns for c in unique_ids(tuple(make.call(call_id=i) for i in turn), seen)]
    assert len(ids) == len(set(ids))
    assert "" not in ids


def test_plans_are_typed_or_refused_with_every_problem() -> None:
    steps = [{"id": "a", "title": "A", "instructions": "do", "acceptance": ["ok"], "depends_on": ["b"], "tier": None}]
    code, said = refusal(check(make.call("submit_plan", {"steps": steps}), role=Role.PLANNER))
    assert code is E.INVALID_PLAN
    assert "depends on 'b'" in said
    steps[0]["depends_on"] = []
    (one,) = check(make.call("submit_plan", {"steps": steps}), role=Role.PLANNER).calls
    assert one.control
    assert isinstance(one.arguments, Plan)
    assert one.arguments.steps[0].id == "a"
    code, said = refusal(check(make.call("submit_plan", {"steps": []}), role=Role.PLANNER))
    assert code is E.INVALID_ARGUMENTS
    assert "steps" in said


@pytest.mark.parametrize("verdict", ["revise", "replan"])
def test_a_verdict_against_needs_a_finding(verdict: str) -> None:
    review = {"verdict": verdict, "findings": [], "evidence": ["ran pytest"]}
    code, said = refusal(check(make.call("submit_review", review), role=Role.REVIEWER))
    assert code is E.INVALID_ARGUMENTS
    assert f"{verdict} needs at least one finding" in said
    sound = check(make.call("submit_review", review | {"findings": ["x"]}), role=Role.REVIEWER, failed_checks=True)
    assert sound.calls[0].control


def test_nothing_is_approved_while_a_check_fails() -> None:
    approve = make.call("submit_review", {"verdict": "approve", "findings": [], "evidence": ["ran it"]})
    assert refusals(check(approve, role=Role.REVIEWER, failed_checks=True)) == [E.CHECKS_FAILED]
    assert refusals(check(approve, role=Role.REVIEWER)) == [None]
    maybe = make.call("submit_review", {"verdict": "maybe", "findings": [], "evidence": []})
    assert refusals(check(maybe, role=Role.REVIEWER)) == [E.INVALID_ARGUMENTS]


def test_only_neighbouring_reads_share_a_batch_and_refused_calls_are_in_none() -> None:
    unknown = make.call("nope", "{}")
    checked = check(READ, READ, WRITE, READ, unknown, READ, make.call(), READ)
    assert [[c.index for c in batch] for batch in batches(checked.calls)] == [[0, 1], [2], [3, 5], [6], [7]]
    assert batches(check(FINISH).calls) == []
    assert batches([]) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_what_is_read_and_what_goes_back_to_an_engine_are_the_same(value: dict[str, Any]) -> None:
    for raw in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert parse_object(raw) == value
        assert json.loads(wire_arguments(raw)) == value


@given(st.text(max_size=40) | st.text(alphabet='{}[]":,\\ua0 \n\x00', max_size=20))
def test_any_text_is_an_object_or_not_one(raw: str) -> None:
    try:
        value = parse_object(raw)
    except NotAnObject:
        assert check(make.call("bash", raw)).bad is not None
    else:
        assert isinstance(value, dict)
        assert json.loads(wire_arguments(raw)) == value
