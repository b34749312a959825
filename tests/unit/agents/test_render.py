"""The prompt: append-only to the byte, every call with its result, the same however it is put together."""

import itertools
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.context.render import Rendered, Renderer, render
from agents.contracts.errors import ErrorCode, FaultClass
from agents.contracts.ids import Role
from agents.contracts.model import AssistantMessage, ChatMessage, ModelReply, ToolMessage, UserMessage
from agents.contracts.tool import ToolCall, parse_observation
from agents.contracts.trajectory import Attempt, Turn
from tests.unit.agents import make

MODEL_CODES = [code for code in ErrorCode if code.rule.fault is FaultClass.MODEL]
texts = st.text(max_size=30)
calls = st.builds(
    ToolCall,
    id=st.sampled_from(["", "call_0", "call_1", "call_0_2", "x"]),
    name=st.sampled_from(["shell", "read_file", "no_such"]),
    arguments=st.sampled_from(["{}", "", '{"command":"a\nb"}', '{"command": "ls"}', ' {"path":"ä"}']),
)
replies = st.builds(lambda cs, text: make.reply(*cs, text=text), st.lists(calls, min_size=1, max_size=4), texts)
bads = st.builds(make.bad, st.sampled_from(MODEL_CODES), st.just(1), st.none() | replies | st.just(make.reply()))
mails = st.lists(
    st.builds(make.mail, st.integers(1, 99), texts, st.sampled_from(["steer", "findings", "mail", "notice"])),
    max_size=2,
)
turn_inputs = st.builds(
    lambda ms, s, left, tokens: make.inputs(
        *ms, at=make.NOW + timedelta(seconds=s), turns_left=left, tokens_left=tokens
    ),
    mails,
    st.integers(0, 10**6),
    st.integers(0, 60),
    st.none() | st.integers(0, 10**6),
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    before = tuple(draw(st.lists(bads, max_size=3)))
    common: dict[str, Any] = {"round": draw(st.integers(1, 3)), "turn": 1, "inputs": draw(turn_inputs)}
    if draw(st.booleans()) and before:
        return Turn(attempts=before, failed=make.failed().failed, **common)
    answer: ModelReply = draw(replies)
    results = tuple(make.result(draw(texts), tool=c.name, exit_code=None) for c in answer.tool_calls)
    return Turn(attempts=(*before, Attempt(k=9, reply=answer)), results=results, **common)


trajectories = st.builds(lambda ts: sorted(ts, key=lambda t: t.round), st.lists(turns(), min_size=1, max_size=6))


def raw(messages: tuple[ChatMessage, ...]) -> list[str]:
    return [message.model_dump_json() for message in messages]


def asked(turn: Turn, attempts: int) -> Turn:
    """The turn as it was when only so many of its attempts had been made."""
    return turn.model_copy(update={"attempts": turn.attempts[:attempts], "results": (), "failed": None})


def every_prompt(trajectory: list[Turn]) -> list[Rendered]:
    """All prompts that this trajectory asked, those of repeats included, in order."""
    renderer, prompts = Renderer(make.PROMPTS, make.brief()), []
    for turn in trajectory:
        prompts += [renderer.open(asked(turn, k)) for k in range(len(turn.attempts))]
        renderer.push(turn)
    return [*prompts, renderer.open(make.opened(99, round_no=3))]


@given(trajectories)
@settings(max_examples=80)
def test_each_prompt_without_its_scratch_is_the_head_of_the_next(trajectory: list[Turn]) -> None:
    prompts = every_prompt(trajectory)
    for before, after in itertools.pairwise(prompts):
        head = raw(before.messages[:-1])
        assert raw(after.messages)[: len(head)] == head


@given(trajectories)
@settings(max_examples=80)
def test_every_call_is_followed_by_its_result_and_ids_are_unique(trajectory: list[Turn]) -> None:
    messages = list(every_prompt(trajectory)[-1].messages)
    seen: list[str] = []
    while messages:
        message = messages.pop(0)
        assert not isinstance(message, ToolMessage), "a result without its call"
        for one in message.tool_calls if isinstance(message, AssistantMessage) else ():
            answer = messages.pop(0)
            assert isinstance(answer, ToolMessage)
            assert answer.tool_call_id == one.id
            assert isinstance(json.loads(one.arguments), dict)
            head = parse_observation(answer.content)
            assert head is not None
            assert head.tool == one.name
            seen.append(one.id)
    assert len(seen) == len(set(seen))
    assert all(seen)


@given(trajectories)
@settings(max_examples=60)
def test_rendering_at_once_and_bit_by_bit_are_the_same(trajectory: list[Turn]) -> None:
    last = make.opened(99, round_no=3)
    at_once = render(make.PROMPTS, make.brief(), [*trajectory, last])
    assert at_once == every_prompt(trajectory)[-1]
    assert at_once == render(dict(reversed(make.PROMPTS.items())), make.brief(), [*trajectory, last])


@given(trajectories)
@settings(max_examples=50)
def test_only_scratch_tells_what_is_left(trajectory: list[Turn]) -> None:
    fewer = make.opened(99, round_no=3, inputs=make.inputs(turns_left=7))
    one = render(make.PROMPTS, make.brief(), [*trajectory, make.opened(99, round_no=3)])
    two = render(make.PROMPTS, make.brief(), [*trajectory, fewer])
    assert raw(one.messages[:-1]) == raw(two.messages[:-1])
    assert one.messages[-1] != two.messages[-1]
    assert one.sha256 != two.sha256


def test_an_open_turn_is_refused_as_history() -> None:
    renderer = Renderer(make.PROMPTS, make.brief())
    one = make.result()
    wrong: list[Any] = [(), (None,), (one, None), (one, one)]
    for turn in (make.opened(1), *(make.done(1, make.call(), results=results) for results in wrong)):
        with pytest.raises(ValueError, match="turn 1/1 has"):
            renderer.push(turn)
    assert len(renderer.open(make.opened()).messages) == 3


def test_arguments_go_back_as_json_that_a_chat_template_can_parse() -> None:
    raw = '{"command": "a\nb"}'
    *_, said, _, _ = render(
        make.PROMPTS, make.brief(), [make.done(1, make.call(arguments=raw)), make.opened(2)]
    ).messages
    assert isinstance(said, AssistantMessage)
    assert json.loads(said.tool_calls[0].arguments) == {"command": "a\nb"}


def test_the_estimate_counts_messages_calls_and_schemas() -> None:
    rendered = render(make.PROMPTS, make.brief(), [make.done(1), make.opened(2)])
    characters = sum(len(t.name + t.description + t.parameters_json) + 2 for t in rendered.tools)
    for message in rendered.messages:
        characters += len(message.content)
        if isinstance(message, AssistantMessage):
            characters += sum(len(c.id + c.name + c.arguments) for c in message.tool_calls)
    assert sum(rendered.layers.values()) == characters
    assert rendered.prompt_tokens_estimate == -(-characters // 4)
    assert set(rendered.layers) == {"system", "long_term", "working", "scratch"}


def test_layers_come_in_their_order() -> None:
    turn = make.done(1, inputs=make.inputs(make.mail(1, "use tabs")))
    system, known, steer, said, seen, scratch = render(make.PROMPTS, make.brief(), [turn, make.opened(2)]).messages
    assert system.role == "system"
    assert system.content == make.PROMPTS[Role.EXECUTOR]
    assert known.role == "user"
    assert "Make the tests pass." in known.content
    assert steer.role == "user"
    assert "use tabs" in steer.content
    assert "ada" in steer.content
    assert (said.role, seen.role, scratch.role) == ("assistant", "tool", "user")
    assert "2026-03-01 12:00:05 UTC" in scratch.content


def test_a_new_round_is_announced_once_with_its_findings() -> None:
    findings = make.inputs(make.mail(1, "line 3 is wrong", "findings", "reviewer"))
    turns = [make.done(1), make.done(1, round_no=2, inputs=findings), make.opened(2, round_no=2)]
    contents = [m.content for m in render(make.PROMPTS, make.brief(), turns).messages if isinstance(m, UserMessage)]
    assert [("Round 2 begins." in c, "line 3 is wrong" in c) for c in contents].count((True, True)) == 1
    assert sum("line 3 is wrong" in c for c in contents) == 1


def test_a_bad_reply_is_shown_as_text_with_what_to_do() -> None:
    half = make.reply(make.call(arguments='{"comm'), text="I will", finish="length")
    attempt = make.bad(ErrorCode.REPLY_TRUNCATED, answer=half)
    *_, said, told, _ = render(make.PROMPTS, make.brief(), [make.opened(1, attempt)]).messages
    assert isinstance(said, AssistantMessage)
    assert not said.tool_calls
    assert "I will" in said.content
    assert '{"comm' in said.content
    assert told.role == "user"
    assert told.content.startswith("[REPLY_TRUNCATED] why.")


def test_a_huge_bad_reply_is_shortened() -> None:
    attempt = make.bad(ErrorCode.REPLY_TRUNCATED, answer=make.reply(text="x" * 100_000))
    said = render(make.PROMPTS, make.brief(), [make.opened(1, attempt)]).messages[-3]
    assert len(said.content) < 2_200


def test_a_nudge_is_in_the_scratch_of_the_next_turn_only() -> None:
    turns = [make.done(n) for n in range(1, 5)]
    nudged = render(make.PROMPTS, make.brief(), [*turns, make.opened(5)])
    assert "same call with the same result 4 times" in nudged.messages[-1].content
    later = render(
        make.PROMPTS, make.brief(), [*turns, make.done(5, make.call("read_file", {"path": "a"})), make.opened(6)]
    )
    assert not any("4 times" in message.content for message in later.messages)


def test_scratch_says_what_is_left_and_when_to_end() -> None:
    left = make.inputs(
        turns_left=2,
        tokens_left=1_200,
        cost_left_micro=1_050_000,
        deadline_at=make.NOW + timedelta(minutes=61, seconds=1),
    )
    scratch = render(make.PROMPTS, make.brief(), [make.opened(1, inputs=left)]).messages[-1].content
    for words in ("turns left: 2", "tokens left: 1200", "money left: 1.050000", "1 h 01 min", "finish_step, give_up"):
        assert words in scratch


def test_a_passed_deadline_reads_as_nothing_left() -> None:
    late = make.inputs(deadline_at=make.NOW - timedelta(hours=1))
    assert (
        "time left: 0 min 00 s"
        in render(make.PROMPTS, make.brief(), [make.opened(1, inputs=late)]).messages[-1].content
    )
