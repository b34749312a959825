"""The catalogues are complete, and the two kinds of contract behave as they promise."""

import re
from http import HTTPStatus
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from agents.contracts import base, event
from agents.contracts.base import Edge, Wire
from agents.contracts.errors import RULES, ErrorCode, FaultClass, Fenced, LonghaulError
from agents.contracts.event import denials
from agents.contracts.network import Denial, DenialReason
from agents.contracts.plan import Plan, PlanStep, plan_problems
from agents.contracts.run import PlanShape, StepShape
from agents.contracts.sandbox import ExecState, ExecStatus
from agents.contracts.task import InputFile, Limits, TaskSpec
from tests.unit.contracts.samples import AT, EVENTS
from workflows import sizes

SUBJECTS = {
    "task",
    "plan",
    "step",
    "turn",
    "model",
    "tool",
    "exec",
    "review",
    "message",
    "approval",
    "checkpoint",
    "artifact",
    "sandbox",
    "lock",
    "budget",
    "steer",
    "agent",
}


def _event_types() -> list[type[BaseModel]]:
    return list(get_args(get_args(event.EventData)[0]))


def test_every_event_is_in_the_union_once_and_has_a_sample() -> None:
    defined = list(event._Data.__subclasses__())
    assert set(defined) == set(_event_types())
    names = [cls.model_fields["type"].default for cls in defined]
    assert len(names) == len(set(names))
    assert sorted(names) == sorted(sample.type for sample in EVENTS)


@pytest.mark.parametrize("cls", _event_types(), ids=lambda cls: cls.__name__)
def test_an_event_is_named_by_its_subject_described_and_versioned(cls: type[BaseModel]) -> None:
    name = cls.model_fields["type"].default
    assert get_args(cls.model_fields["type"].annotation) == (name,)
    assert re.fullmatch(r"[a-z]+\.[a-z_]+", name)
    assert name.split(".")[0] in SUBJECTS
    assert cls.__doc__
    assert cls.model_fields["version"].default == 1
    assert len(name) <= 48  # events.type


def test_terminal_types_are_events() -> None:
    assert {sample.type for sample in EVENTS} >= event.TERMINAL_TYPES


def test_an_excerpt_keeps_head_and_tail_within_the_cap() -> None:
    text = "a" * 5_000 + "b" * 5_000
    short = base.excerpt(text)
    assert len(short) <= base.EXCERPT_CHARS
    assert short[0] == "a"
    assert short[-1] == "b"
    assert base.excerpt("short") == "short"


def test_a_fault_is_stored_as_an_excerpt() -> None:
    assert len(LonghaulError(ErrorCode.INTERNAL, "x" * 100_000).info.detail) <= base.EXCERPT_CHARS


def test_every_code_has_one_rule() -> None:
    assert set(RULES) == set(ErrorCode)
    assert all(code.value == code.name for code in ErrorCode)


@pytest.mark.parametrize("code", list(ErrorCode))
def test_a_rule_is_sound(code: ErrorCode) -> None:
    rule = code.rule
    HTTPStatus(rule.status)
    if rule.fault is FaultClass.REQUEST:
        assert 400 <= rule.status < 500
    if rule.status in (429, 503):
        assert rule.retryable, "these two tell a client to try again"
    if rule.fault in (FaultClass.TOOL, FaultClass.POLICY):
        assert not rule.retryable, "the same call or task would end the same way"


def test_an_error_says_its_code_and_stores_without_more() -> None:
    error = LonghaulError(ErrorCode.NOT_FOUND, "there is no task t", retry_after_s=2)
    assert str(error) == "NOT_FOUND: there is no task t"
    assert error.info.model_dump() == {"code": "NOT_FOUND", "detail": "there is no task t"}
    assert Fenced().code is ErrorCode.FENCED


@pytest.mark.parametrize(
    ("model", "body", "where"),
    [
        (TaskSpec, {"instruction": "x", "instructions": "y"}, ("instructions",)),
        (TaskSpec, {"instruction": "x", "limits": {"token": 1}}, ("limits", "token")),
        (TaskSpec, {"instruction": "x", "sandbox": {"memory": 1}}, ("sandbox", "memory")),
        (TaskSpec, {"instruction": "x", "network": {"deny": []}}, ("network", "deny")),
        (TaskSpec, {"instruction": "x", "repo": {"file_id": "file_12345678", "ref": "m"}}, ("repo", "ref")),
        (
            Plan,
            {"steps": [{"id": "a", "title": "t", "instructions": "i", "acceptance": ["x"], "need": []}]},
            ("steps", 0, "need"),
        ),
    ],
)
def test_an_unknown_field_of_a_user_is_refused_and_named(model: type[Edge], body: Any, where: tuple[Any, ...]) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(body)
    assert [(e["type"], e["loc"]) for e in refused.value.errors()] == [("extra_forbidden", where)]


@pytest.mark.parametrize(
    "body",
    [
        {"instruction": "  \n"},
        {"instruction": "é" * 40_000},
        {"instruction": "x", "limits": {"turns": 0}},
        {"instruction": "x", "limits": {"tokens": -1}},
        {"instruction": "x", "tier": "long"},
        {"instruction": "x", "checks": [""]},
        {"instruction": "x", "network": {"allow": ["10.0.0.1"]}},
        {"instruction": "x", "metadata": {str(n): "v" for n in range(17)}},
    ],
    ids=["blank", "bytes", "no turns", "negative", "tier", "empty check", "address", "metadata"],
)
def test_a_task_that_makes_no_sense_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TaskSpec.model_validate(body)


def test_what_was_refused_to_a_command_is_told_with_its_name() -> None:
    denied = Denial(host="evil.org", port=443, reason=DenialReason.HOST_NOT_ALLOWED)
    status = ExecStatus(exec_id="e", state=ExecState.EXITED, started=True, started_at=AT, denied=(denied,))
    (told,) = denials("sbx_1", status)
    assert (told.sandbox_id, told.exec_id, told.host, told.port) == ("sbx_1", "e", "evil.org", 443)
    assert (told.reason, told.detail) == ("host_not_allowed", "evil.org:443 was not reached: host_not_allowed")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a\x00b", ""])
def test_an_input_file_stays_inside(path: str) -> None:
    with pytest.raises(ValidationError):
        InputFile(file_id="file_12345678", path=path)


def test_zero_is_a_limit_and_none_is_not() -> None:
    assert Limits(tokens=0).tokens == 0
    assert Limits().tokens is None


def test_contracts_are_frozen_and_say_what_they_are() -> None:
    for cls in [*Edge.__subclasses__(), *Wire.__subclasses__()]:
        if cls.__module__.startswith("agents.contracts"):
            assert cls.model_config["frozen"], cls
            assert cls.model_config["extra"] in ("forbid", "ignore"), cls
            assert not any(field.default_factory for field in cls.model_fields.values()), cls


def test_a_plan_step_needs_something_to_be_judged_by() -> None:
    with pytest.raises(ValidationError):
        PlanStep(id="a", title="t", instructions="i", acceptance=[])


def _fan(n: int, resources: list[str]) -> Plan:
    ids = [f"s{i:039d}" for i in range(n)]
    return Plan(
        steps=[
            PlanStep(id=s, title="t", instructions="i", acceptance=["a"], depends_on=ids[:i], resources=resources)
            for i, s in enumerate(ids)
        ]
    )


@pytest.mark.parametrize("plan", [_fan(50, []), _fan(2, ["path:" + "\u20ac" * 1_900] * 20)])
def test_a_plan_too_heavy_to_schedule_is_its_authors_to_mend(plan: Plan) -> None:
    [problem] = plan_problems(plan)
    assert "at most 24576" in problem


def test_a_plan_that_is_accepted_can_be_scheduled() -> None:
    plan = _fan(22, ["path:" + "a" * 40] * 10)
    assert plan_problems(plan) == []
    shapes = [StepShape(id=s.id, depends_on=tuple(s.depends_on), resources=tuple(s.resources)) for s in plan.steps]
    sizes.check([PlanShape(revision=1, steps=tuple(shapes))], "the shape")
