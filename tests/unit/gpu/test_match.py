"""Replay matching: the recording by name or digest, the entry by coordinate, then what the request shows."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.model import INSTRUCTION_HEADER, RECORDING_HEADER
from agents.contracts.recording import Entry, Recording
from agents.contracts.tool import ToolResult, render_observation
from gpu.engine import match
from gpu.engine.recording import OWN_DIR, Library

INSTRUCTION = "repair it"
DIGEST = hashlib.sha256(INSTRUCTION.encode()).hexdigest()


def entry(call: str, observations: list[dict[str, Any]] | None = None, text: str = "") -> dict[str, Any]:
    expect = {"tools": ["shell", "finish_step"], "observations": observations or []}
    return {"call": call, "expect": expect, "reply": {"text": text}}


def recording(*entries: dict[str, Any], name: str = "one") -> Recording:
    values = {"name": name, "instruction": INSTRUCTION, "instruction_sha256": DIGEST, "entries": entries}
    return Recording.model_validate(values)


def body(*observations: ToolResult, tools: tuple[str, ...] = ("finish_step", "shell")) -> dict[str, Any]:
    return {
        "tools": [{"type": "function", "function": {"name": name}} for name in tools],
        "messages": [
            {"role": "user", "content": "brief"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "old"}]},
            {"role": "tool", "content": render_observation(ToolResult(tool="shell", content="", exit_code=9))},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "last"}]},
            *({"role": "tool", "content": render_observation(o)} for o in observations),
            {"role": "assistant", "content": "a reply without a call"},
            {"role": "user", "content": "clock and budget"},
        ],
    }


def refused(code: ErrorCode, act: Any, *args: Any) -> str:
    with pytest.raises(LonghaulError) as caught:
        act(*args)
    assert caught.value.code == code
    return caught.value.detail


def test_a_recording_is_chosen_by_name_before_the_digest() -> None:
    one, two = recording(name="one"), recording(name="two")
    assert match.choose([one, two], {RECORDING_HEADER: "two", INSTRUCTION_HEADER: "0" * 64}) is two
    assert match.choose([one], {INSTRUCTION_HEADER: DIGEST}) is one


def test_an_unknown_recording_says_which_exist() -> None:
    assert "one (" in refused(
        ErrorCode.REPLAY_NOT_RECORDED, match.choose, [recording()], {INSTRUCTION_HEADER: "f" * 64}
    )
    assert "named 'x'" in refused(ErrorCode.REPLAY_NOT_RECORDED, match.choose, [recording()], {RECORDING_HEADER: "x"})
    assert "none" in refused(ErrorCode.REPLAY_NOT_RECORDED, match.choose, [], {})


def test_two_recordings_of_one_instruction_must_be_named() -> None:
    both = [recording(name="one"), recording(name="two")]
    assert "one, two" in refused(ErrorCode.REPLAY_NOT_RECORDED, match.choose, both, {INSTRUCTION_HEADER: DIGEST})


def test_an_entry_is_found_by_its_coordinate_and_an_unknown_one_says_what_is_there() -> None:
    there = recording(entry("executor/1.fix/1/1/m1"), entry("executor/1.fix/1/2/m1"))
    assert match.find(there, "executor/1.fix/1/2/m1").call == "executor/1.fix/1/2/m1"
    for call in ("executor/1.fix/2/1/m1", "executor/1.fix/1/3/m1", "", "nonsense", "executor/1.fix/1/1/m0"):
        assert "executor/1.fix/1/1/m1" in refused(ErrorCode.REPLAY_NOT_RECORDED, match.find, there, call)


def test_a_call_asked_again_gets_its_own_entry_or_the_last_one_before_it() -> None:
    there = recording(entry("executor/1.fix/1/1/m1", text="first"), entry("executor/1.fix/1/1/m3", text="third"))
    texts = [match.find(there, f"executor/1.fix/1/1/m{k}").reply.text for k in (1, 2, 3, 4)]
    assert texts == ["first", "first", "third", "third"]


def test_tools_match_in_any_order_and_observations_in_theirs() -> None:
    seen: list[dict[str, Any]] = [
        {"tool": "shell", "exit_code": 1},
        {"tool": "read_file", "error_code": "FILE_NOT_FOUND"},
    ]
    wanted = Entry.model_validate(entry("executor/1.fix/1/2/m1", seen))
    shell = ToolResult(tool="shell", content="took 0.03 s in /tmp/x as pid 4711", exit_code=1)
    missing = ToolResult(tool="read_file", content="no such file", error_code=ErrorCode.FILE_NOT_FOUND)
    match.check(recording(), wanted, body(shell, missing))
    match.check(recording(), wanted, body(shell.model_copy(update={"content": "other words"}), missing))
    for wrong in (
        body(missing, shell),
        body(shell),
        body(),
        body(shell.model_copy(update={"exit_code": 0}), missing),
        body(shell, missing, tools=("shell",)),
        body(shell, missing, tools=("finish_step", "shell", "ask")),
    ):
        detail = refused(ErrorCode.REPLAY_MISMATCH, match.check, recording(), wanted, wrong)
        shown = match.shown(wrong)
        assert ("the tools offered" in detail) == (shown.tools != ("finish_step", "shell"))
        assert detail.endswith(f" this run: {match.plain(shown)}") == ("the tools offered" in detail)
        assert "observation 1" in detail or "observation 2" in detail or "the tools offered" in detail


def test_a_mismatch_shows_from_where_the_sides_differ_and_is_short() -> None:
    shell = {"tool": "shell", "exit_code": 0}
    wanted = Entry.model_validate(entry("executor/1.fix/1/2/m1", [shell] * 400))
    ran = [ToolResult(tool="shell", content="", exit_code=0)] * 399
    detail = refused(ErrorCode.REPLAY_MISMATCH, match.check, recording(), wanted, body(*ran))
    assert "in observation 400 since the last call" in detail
    assert detail.endswith(
        'recorded: {"observations": [{"exit_code": 0, "tool": "shell"}]} this run: {"observations": []}'
    )
    detail = refused(ErrorCode.REPLAY_MISMATCH, match.check, recording(), wanted, body())
    assert len(detail) < 2 * match.SIDE_CHARS


def test_of_many_calls_those_are_named_that_are_most_like_the_one_asked_for() -> None:
    many = recording(*(entry(f"executor/1.fix/1/{n}/m1") for n in range(1, 2_000)), entry("reviewer/1.fix/1/1/m1"))
    detail = refused(ErrorCode.REPLAY_NOT_RECORDED, match.find, many, "reviewer/1.fix/1/9/m1")
    assert "it has executor/1.fix/1/9/m1, reviewer/1.fix/1/1/m1, executor/1.fix/1/1/m1" in detail
    assert detail.endswith(" and 1990 more")


def test_what_is_no_observation_never_matches() -> None:
    request = body()
    request["messages"].append({"role": "tool", "content": "plain text"})
    assert match.shown(request).observations[0].tool == "(not an observation)"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"instruction_sha256": "0" * 64}, "not the digest"),
        ({"entries": [entry("executor/1.fix/1/1/m1")] * 2}, "recorded twice"),
        ({"entries": [entry("somebody/1/1")]}, "pattern"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_recording_that_is_wrong_is_left_out_and_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    good = recording(entry("executor/1.fix/1/1/m1")).model_dump(mode="json")
    (tmp_path / "good.json").write_text(json.dumps(good))
    (tmp_path / "bad.json").write_text(json.dumps(good | {"name": "bad"} | change))
    library = Library(tmp_path)
    assert [r.name for r in library.recordings()] == ["one"]
    assert library.problems[0].startswith("bad.json")
    assert says in library.problems[0]


def test_a_library_sees_new_files_and_refuses_a_name_twice(tmp_path: Path) -> None:
    library = Library(tmp_path)
    assert library.recordings() == []
    text = recording().model_dump_json()
    (tmp_path / "a.json").write_text(text)
    assert [r.name for r in library.recordings()] == ["one"]
    (tmp_path / "b.json").write_text(text)
    assert [r.name for r in library.recordings()] == ["one"]
    assert "another file" in library.problems[0]


def test_the_recordings_that_come_with_the_engine_are_sound() -> None:
    library = Library(OWN_DIR)
    assert "code_repair" in [r.name for r in library.recordings()]
    assert library.problems == []
