"""The live picture: states, ages by the server's clock, deltas of one try only, the link apart from the task."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from agents.contracts.event import ApprovalDecided, ApprovalRequested, Event
from agents.contracts.model import Delta
from agents.contracts.task import AgentView, Limits, StepState, StepView, TaskStatus, TaskView
from services.cli.fit import shares
from services.cli.tree import Picture

SERVER = datetime(2030, 1, 1, 12, tzinfo=UTC)
HERE = datetime(2020, 6, 6, tzinfo=UTC)


def view(**over: Any) -> TaskView:
    agent = {"id": "agent_1", "role": "executor", "step": "fix", "state": "running", "activity": "runs pytest -q"}
    values: dict[str, Any] = {
        "id": "task_X",
        "status": TaskStatus.RUNNING,
        "instruction": "do it",
        "tier": "auto",
        "created_at": SERVER - timedelta(seconds=50),
        "updated_at": SERVER,
        "last_seq": 9,
        "turns": 4,
        "usage": {"prompt_tokens": 1000},
        "metadata": {},
        "as_of": SERVER,
        "instruction_sha256": "a" * 64,
        "limits": Limits(),
        "checks": [],
        "steps": [
            StepView(id="fix", title="Fix it", depends_on=[], state="running", round=2),
            StepView(id="report", title="Report", depends_on=["fix"], state="pending"),
        ],
        "agents": [AgentView.model_validate(agent | {"activity_at": SERVER - timedelta(seconds=3), "turns": 4})],
    }
    return TaskView.model_validate(values | over)


def drawn(picture: Picture, now: datetime = HERE) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    console.print(picture.render(console, now))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def delta(key: str, fence: int, text: str) -> Delta:
    return Delta(task_id="task_X", agent_id="agent_1", key=key, fence=fence, text=text, at=SERVER)


def test_states_and_ages_by_the_servers_clock() -> None:
    picture = Picture()
    picture.saw(view(), HERE)
    text = drawn(picture, HERE + timedelta(seconds=4))
    assert "running  54 s  4 turns  1,000 tokens  link ok" in text
    assert "fix  Fix it  running, round 2" in text
    assert "executor: runs pytest -q  7 s" in text
    assert "report  Report  pending  after fix" in text


def test_waiting_and_a_broken_link_are_two_things() -> None:
    picture = Picture()
    picture.saw(view(status="waiting", waiting_for="the model"), HERE)
    picture.link = "down: no answer"
    assert "waiting for the model" in drawn(picture)
    assert "link down: no answer" in drawn(picture)
    picture.saw(view(), HERE)
    assert "link ok" in drawn(picture)


def test_a_new_try_replaces_the_text_of_the_old_one() -> None:
    picture = Picture()
    picture.saw(view(), HERE)
    picture.heard(delta("k1", 1, "old "))
    picture.heard(delta("k1", 1, "words"))
    assert "» old words" in drawn(picture)
    picture.heard(delta("k1", 2, "new"))
    picture.heard(delta("k1", 1, " stale"))
    assert "» new" in drawn(picture)
    assert "stale" not in drawn(picture)
    picture.heard(delta("k2", 1, "next call"))
    assert "» next call" in drawn(picture)


def test_before_the_first_answer_it_says_so() -> None:
    assert "connecting" in drawn(Picture())


def test_what_waits_for_a_person_stands_there_with_the_command_until_it_is_decided() -> None:
    picture = Picture()
    picture.saw(view(), HERE)
    asked = ApprovalRequested(
        approval_id="appr_1", key="k", arguments_sha256="a" * 64, tool="shell", arguments='{"command": "make"}'
    )
    picture.told(Event(task_id="task_X", seq=1, at=SERVER, data=asked))
    shown = text_of(picture)
    assert "waits for you: shell make" in shown
    assert "longhaul approve appr_1" in shown
    decided = ApprovalDecided(approval_id="appr_1", decision="approve", actor="key:k")
    picture.told(Event(task_id="task_X", seq=2, at=SERVER, data=decided))
    assert "appr_1" not in text_of(picture)


def text_of(picture: Picture) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(picture.render(console, HERE))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_one_of_several_is_named_and_folds_once_its_task_has_ended() -> None:
    picture = Picture(label="code_repair")
    assert drawn(picture).startswith("code_repair  connecting")
    picture.saw(view(), HERE)
    assert drawn(picture).startswith("code_repair  running")
    assert "fix  Fix it" in drawn(picture)
    picture.saw(view(status=TaskStatus.COMPLETED), HERE)
    assert drawn(picture).splitlines() == ["code_repair  completed  50 s  4 turns  1,000 tokens  link ok"]


def many_steps() -> TaskView:
    done: StepState = "completed"
    coming: StepState = "pending"
    states: list[StepState] = [*[done] * 6, "running", *[coming] * 6]
    steps = [StepView(id=f"s{n}", title="A step", depends_on=[], state=state) for n, state in enumerate(states)]
    agent = {"id": "agent_1", "role": "executor", "step": "s6", "state": "running", "activity": "runs pytest -q"}
    return view(steps=steps, agents=[AgentView.model_validate(agent | {"activity_at": SERVER, "turns": 4})])


def rows(picture: Picture, room: int, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(picture.render(console, HERE, room))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_where_room_is_short_what_works_stays() -> None:
    picture = Picture(label="one")
    picture.saw(many_steps(), HERE)
    picture.heard(delta("k", 1, "words " * 50))
    assert len(rows(picture, 99)) == 16
    head, *rest = rows(picture, 5)
    assert head.endswith("+11 rows")
    assert [line.split()[0] for line in rest] == ["◐", "executor:", "○", "»"]
    assert [line[:9] for line in rows(picture, 3)[1:]] == ["  ◐ s6  A", "      exe"]
    assert len(rows(picture, 1)) == len(rows(picture, 0)) == 1
    assert max(len(line) for room in range(20) for line in rows(picture, room, 40)) < 40


def test_pictures_share_the_rows_there_are() -> None:
    assert shares([4, 5, 6], 23) == [4, 5, 6]
    assert shares([3, 20, 20], 23) == [3, 10, 10]
    assert shares([9, 9, 9], 23) == [7, 8, 8]
    assert shares([9] * 30, 23) == [1] * 30
    assert shares([], 23) == []
