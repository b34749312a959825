"""Recorded tasks are replayed against today's code: a changed prompt, schema or policy is found where it acts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from agents.contracts.base import EXCERPT_CHARS
from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Role
from agents.contracts.recording import Recording
from agents.policy import retry, stuck
from agents.policy.retry import Change
from agents.tools.registry import TOOLS, schemas
from services.cli.main import build
from services.prompts import prompts
from services.recording.file import Unreadable, read
from services.stack.layout import CHECKOUT
from tests.support.memory import BRIEF
from tests.support.recorded import PROMPTS, lived, recorded, replayed, task_of
from tests.support.scripts import says
from workflows.replay.against import against
from workflows.replay.differences import Difference, Replay
from workflows.replay.take import take

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.json"))
FINISH = says(("finish_step", {"summary": "done"}))
TALK = says(text="let me think", finish="stop")
READ = says(("read_file", {"path": "a"}))


def test_demos_are_recorded() -> None:
    demos = CHECKOUT / "services" / "cli" / "demo"
    assert {path.stem for path in RECORDINGS} == {path.parent.name for path in demos.glob("*/instruction.md")}


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
async def test_a_demo_replays(path: Path) -> None:
    recording, task = read(path)
    played = await against(recording, task, prompts())
    assert played.same, f"{differences(played)}\n`longhaul replay {path}` tells more; meant? `make recordings`"
    assert played.calls == len(recording.entries) == len({entry.call for entry in recording.entries})
    assert played.notes == ()


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
async def test_a_changed_prompt_is_found_in_every_call_of_its_role(path: Path) -> None:
    recording, task = read(path)
    mine = prompts()
    mine[Role.REVIEWER] = mine[Role.REVIEWER].replace("You are the reviewer", "You are the only reviewer")
    played = await against(recording, task, mine)
    found = differences(played)
    assert {d.call for d in found} == {e.call for e in recording.entries if e.call.startswith("reviewer/")}
    assert {(d.kind, d.layer, d.message) for d in found} == {("request", "system", 0)}
    by_agent = [agent.differences for agent in played.agents if agent.differences]
    assert all(
        "-You are the reviewer" in first.diff and "+You are the only reviewer" in first.diff for first, *_ in by_agent
    )
    assert not any(again.diff for _, *more in by_agent for again in more)
    assert not any(agent.stopped_at for agent in played.agents)


async def test_a_changed_tool_schema_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    recording, task = read(RECORDINGS[0])
    shell = TOOLS["shell"]
    contract = shell.contract.model_copy(update={"description": "Runs a command."})
    monkeypatch.setitem(TOOLS, "shell", replace(shell, contract=contract))
    schemas.cache_clear()
    try:
        played = await against(recording, task, prompts())
    finally:
        schemas.cache_clear()
    roles = {agent.agent.partition("/")[0] for agent in played.agents if agent.differences}
    assert roles == {"executor", "reviewer"}
    firsts = [agent.differences[0] for agent in played.agents if agent.differences]
    assert all(d.layer == "tools" and "Runs a command." in d.diff and d.call.endswith("/1/1/m1") for d in firsts)


async def test_what_was_sent_is_known_by_its_digest_alone() -> None:
    recording = await recorded(await lived([READ, FINISH]))
    assert recording.task
    [round_] = recording.task.agents[0].rounds
    assert all(turn.attempts[0].request_sha256 for turn in round_.turns)
    turns = round_.model_dump(mode="json")["turns"]
    turns[1]["attempts"][0]["request_sha256"] = "0" * 64
    [other] = differences(await replayed(as_if(recording, turns=turns)))
    assert (other.call, other.kind) == ("executor/1.s1/1/2/m1", "request")
    assert "shows what the code that made it asks" in other.what
    [other] = differences(await replayed(as_if(recording, turns=turns, asks=[])))
    assert "has only its digest" in other.what
    del turns[1]["attempts"][0]["request_sha256"]
    assert (await replayed(as_if(recording, turns=turns))).same


async def test_a_recording_by_code_that_asks_in_other_words_says_so() -> None:
    agent = await lived([READ, FINISH])
    recording = await take(BRIEF.goal, task_of(agent), PROMPTS | {Role.EXECUTOR: "Be long."})
    assert recording.task
    [note] = recording.task.notes
    assert note.startswith("executor/1.s1/1/1/m1: ")
    assert "(2 calls of this agent)" in note
    secret = await lived([says(("read_file", {"path": "a"}), text="password=hunter2hunter2"), FINISH])
    clean = (await recorded(secret)).task
    assert clean
    assert clean.redactions
    assert {a.request_sha256 for turn in clean.agents[0].rounds[0].turns for a in turn.attempts} == {None}
    assert clean.notes == ()


async def test_a_difference_says_in_which_line_and_is_short() -> None:
    recording = await recorded(await lived([FINISH]))
    mine = PROMPTS | {Role.EXECUTOR: PROMPTS[Role.EXECUTOR] + "\n" + "x" * 100_000}
    [difference] = differences(await replayed(recording, mine))
    assert "differs from line 3 on" in difference.what
    assert len(difference.diff) < 2_000
    round_ = {"outcome": json.dumps({"summary": "s" * 100_000})}
    [difference] = differences(await replayed(as_if(recording, **round_)))
    assert len(difference.then or "") <= EXCERPT_CHARS


async def test_a_changed_retry_policy_is_found_at_the_second_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = await lived({"1/1/m1": READ, "1/2/m1": TALK, "1/2/m2": FINISH})
    recording = await recorded(agent)
    assert (await replayed(recording)).same
    monkeypatch.setitem(retry.SECOND_AND_THIRD, ErrorCode.NO_TOOL_CALL, (Change(temperature=0.7),))
    [difference] = differences(await replayed(recording))
    assert (difference.call, difference.kind) == ("executor/1.s1/1/2/m2", "decision")
    assert "temperature 0.2" in (difference.then or "")
    assert "temperature 0.7" in (difference.now or "")


async def test_a_turn_that_would_be_given_up_is_found_at_the_bad_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = await recorded(await lived({"1/1/m1": TALK, "1/1/m2": READ, "1/2/m1": FINISH}))
    monkeypatch.setitem(retry.SECOND_AND_THIRD, ErrorCode.NO_TOOL_CALL, ())
    played = await replayed(recording)
    [difference] = differences(played)
    assert (difference.call, difference.then) == ("executor/1.s1/1/1/m1", "it is asked again")
    assert played.agents[0].stopped_at == difference.call


async def test_a_call_that_would_be_accepted_now_is_found() -> None:
    recording = await recorded(await lived([says(("shell", {"command": 5})), FINISH]))
    assert recording.task
    [round_] = recording.task.agents[0].rounds
    assert round_.refused == {"1/0": ErrorCode.INVALID_ARGUMENTS}
    assert (await replayed(recording)).same
    [difference] = differences(await replayed(as_if(recording, refused={})))
    assert (difference.call, difference.kind) == ("executor/1.s1/1/1/m1", "decision")
    assert difference.what == "call 0 is refused"
    assert (difference.now or "").startswith("INVALID_ARGUMENTS")
    accepted = await recorded(await lived([READ, FINISH]))
    [difference] = differences(await replayed(as_if(accepted, refused={"1/0": "UNKNOWN_TOOL"})))
    assert (difference.what, difference.then, difference.now) == ("call 0 is accepted", "UNKNOWN_TOOL", "accepted")


async def test_a_call_about_which_a_person_would_be_asked_now_is_found() -> None:
    recording = await recorded(await lived([READ, FINISH]))
    assert recording.task
    brief = recording.task.agents[0].rounds[0].model_dump(mode="json")["brief"]
    [difference] = differences(await replayed(as_if(recording, brief=brief | {"tools": {"read_file": "ask"}})))
    assert (difference.call, difference.then, difference.now) == ("executor/1.s1/1/1/m1", "none", "calls 0")


async def test_a_stuck_verdict_that_changed_is_found() -> None:
    agent = await lived([*[READ] * 8, FINISH])
    assert agent.rounds[0].reason == "no_progress"
    recording = await recorded(agent)
    played = await replayed(recording)
    assert (played.same, played.calls) == (True, 6)
    [difference] = differences(await replayed(as_if(recording, reason="finished")))
    assert (difference.what, difference.then) == ("the round ends otherwise", "finished")
    assert (difference.now or "").startswith("no_progress")


async def test_a_round_that_would_go_on_is_found() -> None:
    recording = await recorded(await lived([READ, FINISH]))
    assert recording.task
    turns = recording.task.agents[0].rounds[0].model_dump(mode="json")["turns"][:1]
    [difference] = differences(await replayed(as_if(recording, turns=turns, reason="no_progress")))
    assert (difference.call, difference.what) == ("executor/1.s1/1/2/m1", "the round goes on")
    assert (await replayed(as_if(recording, turns=turns, reason="cancelled"))).same


async def test_a_changed_nudge_is_found_where_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = await recorded(await lived([*[READ] * 4, FINISH]))
    rules = tuple(replace(rule, words="Stop it, after {n}.") for rule in stuck.RULES)
    monkeypatch.setattr(stuck, "RULES", rules)
    [difference] = differences(await replayed(recording))
    assert (difference.call, difference.layer) == ("executor/1.s1/1/5/m1", "scratch")
    assert "+Stop it, after 4." in difference.diff


async def test_a_task_under_way_is_played_as_far_as_it_is() -> None:
    agent = await lived([READ, READ, FINISH])
    open_turn = agent.rounds[0].turns[1].model_copy(update={"results": (None,)})
    cut = agent.rounds[0].model_copy(
        update={"turns": (agent.rounds[0].turns[0], open_turn), "reason": None, "outcome": None}
    )
    recording = await recorded(agent.model_copy(update={"rounds": (cut,)}))
    played = await replayed(recording)
    assert (played.same, played.calls) == (True, 2)


async def test_a_recording_by_code_that_decides_otherwise_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = await lived({"1/1/m1": READ, "1/2/m1": TALK, "1/2/m2": FINISH})
    monkeypatch.setitem(retry.SECOND_AND_THIRD, ErrorCode.NO_TOOL_CALL, ())
    recording = await recorded(agent)
    assert recording.task
    [note] = recording.task.notes
    assert note.startswith("executor/1.s1/1/2/m1")
    assert len(recording.entries) == 3
    assert len(recording.task.agents[0].rounds[0].asks) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not"),
        (b'{"version": 1, "name": "a", "entr', "only a part"),
        (b'{"openapi": "3.1"}', "no recording of Longhaul"),
        (b"[1]", "no recording of Longhaul"),
        (b'{"version": 2, "name": "a", "instruction": "b", "entries": []}', "version 2"),
        (b'{"version": 1, "name": "a", "instruction": "b", "entries": []}', "holds replies only"),
        (b'{"version": 1, "name": "a", "instruction": "b", "entries": [], "task": {"id": 1}}', "damaged"),
    ],
)
def test_what_is_no_recording_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(Unreadable, match=words):
        read(path)
    assert longhaul("replay", str(path)).exit_code == 2


def test_the_command(tmp_path: Path) -> None:
    path = str(RECORDINGS[0])
    same = longhaul("replay", path)
    assert (same.exit_code, same.stdout.splitlines()[-1][:5]) == (0, "Same:"), same.stdout + same.stderr
    empty = longhaul("replay", path, "--prompts", str(tmp_path))
    assert empty.exit_code == 2
    assert "planner.md, executor.md, reviewer.md" in empty.stderr
    (tmp_path / "planner.md").write_text("Plan.\n")
    other = longhaul("replay", path, "--prompts", str(tmp_path))
    assert other.exit_code == 1
    assert "at planner/1.plan/1/1/m1: message 1 of 3 (system) differs" in other.stdout
    assert "+Plan." in other.stdout
    (tmp_path / "executor.md").write_text("Do.\n")
    two = longhaul("replay", path, "--prompts", str(tmp_path)).stdout
    assert two.count("+Do.") == 1
    assert "the same as at executor/1.repair/1/1/m1" in two
    (tmp_path / "executor.md").unlink()
    told = json.loads(longhaul("replay", path, "--prompts", str(tmp_path), "--json").stdout)
    assert told["same"] is False
    assert [a["agent"] for a in told["agents"] if a["differences"]] == ["planner/1.plan"]
    assert longhaul("replay", str(tmp_path / "missing.json")).exit_code == 2


def longhaul(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(build(), list(arguments))


def differences(played: Replay) -> list[Difference]:
    return [difference for agent in played.agents for difference in agent.differences]


def as_if(recording: Recording, **round_: Any) -> Recording:
    """The recording of a run whose only round was otherwise in this."""
    plain = recording.model_dump(mode="json")
    plain["task"]["agents"][0]["rounds"][0] |= round_
    return Recording.model_validate(plain)
