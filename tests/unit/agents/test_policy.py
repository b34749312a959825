"""Policies, row by row."""

from collections.abc import Callable
from graphlib import CycleError
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.context.wording import WORDING, correction
from agents.contracts.errors import ErrorCode, ErrorInfo, FaultClass
from agents.contracts.ids import Role
from agents.contracts.model import BadReply
from agents.contracts.plan import Tier
from agents.contracts.run import PlanShape, StepShape
from agents.contracts.trajectory import Attempt, Turn
from agents.policy.budget import MIN_REPLY_TOKENS, affordable_reply, reserve_estimate
from agents.policy.parallel import compatible, ready, topological
from agents.policy.retry import SECOND_AND_THIRD, Ask, next_attempt
from agents.policy.stuck import FARTHEST, RULES, nudge, verdict
from tests.unit.agents import make

E = ErrorCode
MODEL_CODES = [code for code in ErrorCode if code.rule.fault is FaultClass.MODEL]
FAST: Literal["fast"] = "fast"
FULL: Literal["full"] = "full"


# --- retry --------------------------------------------------------------------------------------------------------
def test_every_code_of_a_model_has_a_row_and_words() -> None:
    assert set(SECOND_AND_THIRD) == set(MODEL_CODES) == set(WORDING)


def asks(tier: Tier, role: Role, *codes: ErrorCode, step_tier: Tier | None = None) -> Ask | ErrorInfo:
    step = make.step(tier=step_tier) if step_tier else make.step()
    return next_attempt(make.brief(role, tier=tier, step=step), role, [make.bad(c, k) for k, c in enumerate(codes, 1)])


@pytest.mark.parametrize(
    ("tier", "role", "step_tier", "expected"),
    [
        ("auto", Role.PLANNER, None, FULL),
        ("auto", Role.EXECUTOR, None, FAST),
        ("auto", Role.REVIEWER, None, FULL),
        ("auto", Role.EXECUTOR, FULL, FULL),
        ("auto", Role.REVIEWER, FAST, FULL),
        ("fast", Role.PLANNER, None, FAST),
        ("fast", Role.EXECUTOR, FULL, FAST),
        ("full", Role.EXECUTOR, FAST, FULL),
        ("replay", Role.REVIEWER, FULL, "replay"),
    ],
)
def test_the_first_ask(tier: Tier, role: Role, step_tier: Tier | None, expected: str) -> None:
    assert asks(tier, role, step_tier=step_tier) == Ask(tier=expected, temperature=0.0, tool_choice="required")  # type: ignore[arg-type]


LADDER: dict[ErrorCode, list[tuple[Tier, float] | None]] = {
    E.NO_TOOL_CALL: [(FAST, 0.2), None],
    E.EMPTY_REPLY: [(FAST, 0.4), (FULL, 0.4), None],
    E.REPLY_TRUNCATED: [(FAST, 0.2), (FULL, 0.2), None],
    E.REPLY_ABORTED: [(FAST, 0.0), (FULL, 0.0), None],
    E.UNPARSABLE_CALL: [(FULL, 0.0), (FULL, 0.4), None],
    E.REFUSED: [(FAST, 0.4), (FULL, 0.4), None],
    E.CONTEXT_TOO_LONG: [None],
}


@pytest.mark.parametrize("code", MODEL_CODES)
@pytest.mark.parametrize("tier", ["auto", "fast", "full", "replay"])
def test_the_ladder_row_by_row(code: ErrorCode, tier: Tier) -> None:
    for n, expected in enumerate(LADDER[code], 1):
        got = asks(tier, Role.EXECUTOR, *[code] * n)
        if expected is None:
            assert isinstance(got, ErrorInfo)
            assert got.code is code
            continue
        assert isinstance(got, Ask)
        assert got.tier == (expected[0] if tier == "auto" else tier)
        assert (got.temperature, got.tool_choice) == (expected[1], "required")


@given(
    st.sampled_from(["auto", "fast", "full", "replay"]), st.lists(st.sampled_from(MODEL_CODES), min_size=3, max_size=9)
)
def test_no_mixture_of_bad_replies_is_asked_more_than_three_times(tier: Tier, codes: list[ErrorCode]) -> None:
    assert isinstance(asks(tier, Role.EXECUTOR, *codes), ErrorInfo)


def test_an_attempt_that_was_never_answered_does_not_count() -> None:
    lost = Attempt(k=1)
    brief = make.brief()
    assert next_attempt(brief, Role.EXECUTOR, [lost]) == next_attempt(brief, Role.EXECUTOR, [])
    one_bad = [make.bad(E.EMPTY_REPLY, 1)]
    assert next_attempt(brief, Role.EXECUTOR, [*one_bad, Attempt(k=2)]) == next_attempt(brief, Role.EXECUTOR, one_bad)


def test_a_code_that_is_no_models_gives_up_at_once() -> None:
    assert isinstance(asks("auto", Role.EXECUTOR, E.REPLAY_MISMATCH), ErrorInfo)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("code", MODEL_CODES)
def test_every_correction_is_whole(code: ErrorCode, role: Role) -> None:
    said = correction(role, BadReply(code=code, detail="It had braces {like} these."))
    assert said.startswith(f"[{code.value}] It had braces {{like}} these. ")
    assert "{tools}" not in said


# --- stuck --------------------------------------------------------------------------------------------------------
def same(n: int) -> Turn:
    return make.done(n, results=(make.result(f"2 failed in 0.{n}s"),))


def error(n: int) -> Turn:
    return make.done(n, results=(make.result("no match", exit_code=None, error_code=E.EDIT_NO_MATCH),))


def alternating(n: int) -> Turn:
    return make.done(n, make.call(arguments={"command": "ab"[n % 2]}))


def useless(n: int) -> Turn:
    return make.failed(n)


@pytest.mark.parametrize(
    ("turn", "kind", "nudge_at", "stop_at"),
    [
        (same, "same", 4, 6),
        (error, "error", 3, 5),
        (alternating, "alternating", 6, 8),
        (useless, "failed", 2, 3),
    ],
)
def test_each_rule_nudges_then_stops(turn: Callable[[int], Turn], kind: str, nudge_at: int, stop_at: int) -> None:
    other = make.done(99, make.call(arguments={"command": "something else"}))
    for count in range(stop_at + 3):
        turns = [other, *(turn(n) for n in range(count))]
        expected = None if count < nudge_at else "nudge" if count < stop_at else "stop"
        assert verdict(turns) == expected, (kind, count)
        assert bool(nudge(turns)) == (expected is not None)
    assert verdict([*(turn(n) for n in range(stop_at)), other]) is None


def test_the_rules_are_those_and_none_looks_too_far() -> None:
    assert {rule.kind for rule in RULES} == {"failed", "error", "same", "alternating"}
    assert all(rule.nudge_at < rule.stop_at <= FARTHEST for rule in RULES)


@pytest.mark.parametrize(
    "results",
    [
        ["1 failed", "2 failed", "3 failed", "4 failed"],
        ["x", "x", "x", "x" * 500],
        ["epoch 1", "epoch 2", "epoch 3", "epoch 4"],
    ],
)
def test_progress_is_not_being_stuck(results: list[str]) -> None:
    assert verdict([make.done(n, results=(make.result(r),)) for n, r in enumerate(results)]) is None


@pytest.mark.parametrize("change", [{"exit_code": 1}, {"error_code": E.EXEC_TIMEOUT, "exit_code": None}])
def test_another_exit_or_error_is_another_outcome(change: dict[str, object]) -> None:
    turns = [same(n) for n in range(3)]
    changed = turns[0].results[0].model_copy(update=change)  # type: ignore[union-attr]
    assert verdict([*turns, turns[0].model_copy(update={"results": (changed,)})]) is None


def test_clock_readings_addresses_and_spelling_do_not_hide_a_loop() -> None:
    contents = [
        f"<obj at 0x7f{n}1c> 1 failed in 0.{n}3s at 2026-03-01 10:00:0{n} in /tmp/pytest-{n}/x" for n in range(4)
    ]
    spelled = ['{"command":"ls", "timeout_s": 5}', '{ "timeout_s": 5, "command": "ls"}'] * 2
    turns = [
        make.done(n, make.call(arguments=a), results=(make.result(c),))
        for n, (a, c) in enumerate(zip(spelled, contents, strict=True))
    ]
    assert verdict(turns) == "nudge"


def test_news_starts_the_count_again() -> None:
    steered = same(4).model_copy(update={"inputs": make.inputs(make.mail(1))})
    assert verdict([same(1), same(2), same(3), steered]) is None
    next_round = [same(n).model_copy(update={"round": 2}) for n in range(3)]
    assert verdict([same(1), same(2), same(3), *next_round]) is None
    assert verdict([]) is None


# --- parallel -----------------------------------------------------------------------------------------------------
def shape(*steps: StepShape) -> PlanShape:
    return PlanShape(revision=1, steps=steps)


def node(step_id: str, *after: str, holds: tuple[str, ...] = ()) -> StepShape:
    return StepShape(id=step_id, depends_on=after, resources=holds)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (["path:src/a"], ["path:src/b"], True),
        (["path:src/a"], ["path:src/ab"], True),
        (["path:src"], ["path:src/b"], False),
        (["path:src/"], ["path:./src"], False),
        (["path:/workspace/src"], ["path:src/x"], False),
        (["path:/workspace"], ["path:src"], False),
        (["path:"], ["path:src"], False),
        (["path:."], ["path:src"], False),
        (["path:a/../src"], ["path:other"], False),
        (["path:src/*.py"], ["path:src/deep/x"], False),
        (["path:src/*.py"], ["path:docs"], True),
        (["path:Docs"], ["path:docs"], False),
        (["path:a", "path:b"], ["path:c", "path:b/x"], False),
        ([], ["path:a"], False),
        ([], [], False),
        (["port:80"], ["path:a"], False),
        (["path:a", "port:80"], ["path:b", "port:80"], False),
        (["path:a", "port:80"], ["path:b", "port:81"], True),
    ],
)
def test_two_steps_run_side_by_side_only_on_disjoint_paths(one: list[str], other: list[str], expected: bool) -> None:
    a, b = node("a", holds=tuple(one)), node("b", holds=tuple(other))
    assert compatible(a, b) is compatible(b, a) is expected
    assert ready(shape(a, b), set(), set(), 4) == (["a", "b"] if expected else ["a"])
    assert ready(shape(a, b), set(), {"a"}, 4) == (["b"] if expected else [])


def test_ready_follows_the_dag_and_the_limit() -> None:
    plan = shape(
        node("d", "b", "c", holds=("path:d",)),
        node("b", "a", holds=("path:b",)),
        node("c", "a", holds=("path:c",)),
        node("a", holds=("path:a",)),
    )
    assert topological(plan) == ["a", "b", "c", "d"]
    assert ready(plan, set(), set(), 4) == ["a"]
    assert ready(plan, {"a"}, set(), 4) == ["b", "c"]
    assert ready(plan, {"a"}, set(), 1) == ["b"]
    assert ready(plan, {"a"}, {"b"}, 1) == []
    assert ready(plan, {"a", "b"}, {"c"}, 4) == []
    assert ready(plan, {"a", "b", "c"}, set(), 4) == ["d"]
    assert ready(plan, {"a", "b", "c", "d", "of an older plan"}, set(), 4) == []


def test_a_circle_is_an_error() -> None:
    with pytest.raises(CycleError):
        topological(shape(node("a", "b"), node("b", "a")))


@st.composite
def dags(draw: st.DrawFn) -> PlanShape:
    count = draw(st.integers(1, 7))
    names = [f"s{n}" for n in range(count)]
    steps = []
    for n, name in enumerate(names):
        after = draw(st.lists(st.sampled_from(names[:n]), unique=True, max_size=3)) if n else []
        holds = draw(st.lists(st.sampled_from(["path:a", "path:a/b", "path:c", "path:d", "gpu:0"]), max_size=2))
        steps.append(node(name, *after, holds=tuple(holds)))
    return shape(*draw(st.permutations(steps)))


@given(dags(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_every_plan_is_carried_out_whole_and_never_side_by_side_where_it_must_not(
    plan: PlanShape, limit: int, chance: object
) -> None:
    by_id = {step.id: step for step in plan.steps}
    done: set[str] = set()
    running: list[str] = []
    while len(done) < len(by_id):
        started = ready(plan, done, set(running), limit)
        assert started or running, "nothing runs and nothing may start"
        for step in started:
            assert set(by_id[step].depends_on) <= done
            running.append(step)
        assert len(running) <= limit
        assert all(compatible(by_id[a], by_id[b]) for a in running for b in running if a != b)
        done.add(running.pop(chance.randrange(len(running))))  # type: ignore[attr-defined]


# --- budget -------------------------------------------------------------------------------------------------------
def test_a_reservation_is_prompt_and_longest_reply() -> None:
    assert reserve_estimate(1_000, 4_096) == 5_096


@pytest.mark.parametrize(
    ("prompt", "wanted", "left", "expected"),
    [
        (1_000, 4_096, None, 4_096),
        (1_000, 4_096, 10_000, 4_096),
        (1_000, 4_096, 3_000, 2_000),
        (1_000, 4_096, 1_000 + MIN_REPLY_TOKENS, MIN_REPLY_TOKENS),
        (1_000, 4_096, 1_000 + MIN_REPLY_TOKENS - 1, None),
        (1_000, 4_096, 0, None),
        (1_000, 100, 1_100, 100),
    ],
)
def test_a_reply_is_as_long_as_is_left(prompt: int, wanted: int, left: int | None, expected: int | None) -> None:
    assert affordable_reply(prompt, wanted, left) == expected
