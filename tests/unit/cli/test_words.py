"""Events in words: short, and harmless to a terminal whatever a model wrote."""

from datetime import UTC, datetime, timedelta

import pytest

from agents.contracts.event import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    Event,
    EventData,
    ExecExited,
    ExecStarted,
    ModelCompleted,
    SandboxDenied,
    StepFailed,
    TurnStarted,
)
from agents.contracts.model import Usage
from agents.contracts.task import StopReason
from services.cli.words import age, arguments_line, lines_of, money, one_line, spent

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def lines(data: EventData) -> list[str]:
    return [line.text for line in lines_of(Event(task_id="task_X", seq=1, at=NOW, step_id="fix", data=data))]


def test_a_command_and_its_end() -> None:
    assert lines(ExecStarted(exec_id="e", command="pytest -q")) == ["[fix] $ pytest -q"]
    ended = ExecExited(exec_id="e", exit_code=1, reason="exited", output="a\n1 failed\n\n", duration_ms=1500)
    assert lines(ended) == ["[fix] exit code 1 after 1.5 s · 1 failed"]
    killed = ExecExited(exec_id="e", exit_code=137, reason="timeout", output="", duration_ms=2000)
    assert lines(killed) == ["[fix] timeout, exit code 137 after 2.0 s"]


def test_a_step_that_was_cancelled_has_not_failed() -> None:
    assert lines(StepFailed(round=1, stop_reason=StopReason.CANCELLED)) == ["[fix] cancelled"]
    assert lines(StepFailed(round=1, stop_reason=StopReason.GAVE_UP)) == ["[fix] failed: gave_up"]


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J\x1b]8;;http://x\x07click\x07", "a\rb\x00c", "\u202eevil", "x" * 10_000_000]
)
def test_hostile_text_is_one_short_printable_line(hostile: str) -> None:
    (line,) = lines(ModelCompleted(key="k", model="m", text="t " + hostile, calls=(), usage=Usage(), latency_ms=1))
    assert line.isprintable()
    assert len(line) < 200


def test_a_connection_that_was_refused() -> None:
    denied = SandboxDenied(sandbox_id="sbx_1", detail="evil.org:443 was not reached: host_not_allowed")
    assert lines(denied) == ["[fix] network: evil.org:443 was not reached: host_not_allowed"]


def test_most_events_need_no_line() -> None:
    assert lines(TurnStarted(round=1)) == []


def test_what_asks_says_how_to_answer() -> None:
    asked = ApprovalRequested(
        approval_id="appr_1", key="k", arguments_sha256="a" * 64, tool="shell", arguments='{"command": "rm -rf x"}'
    )
    first, second = lines(asked)
    assert first == "[fix] asks whether to run shell: rm -rf x"
    assert "longhaul approve appr_1" in second
    assert "longhaul deny appr_1" in second
    unknown = asked.model_copy(update={"kind": "unknown_outcome"})
    assert "nobody knows how it ended" in lines(unknown)[0]
    assert lines(ApprovalDecided(approval_id="appr_1", decision="deny", actor="key:k", note="no\nno")) == [
        "[fix] denied by key:k: no no"
    ]
    (expired,) = lines(ApprovalExpired(approval_id="appr_1"))
    assert "denied" not in expired


@pytest.mark.parametrize(
    ("arguments", "line"),
    [('{"command": "ls"}', "ls"), ('{"path": "a"}', '{"path": "a"}'), ('{"cut', '{"cut'), ("[1]", "[1]")],
)
def test_arguments_on_one_line(arguments: str, line: str) -> None:
    assert arguments_line(arguments) == line


def test_figures() -> None:
    assert [age(NOW - timedelta(seconds=s), NOW) for s in (-5, 7, 150, 9_000)] == ["0 s", "7 s", "2 min", "2 h"]
    assert [money(m) for m in (0, 1_500_000, 25)] == ["0", "1.5", "0"]
    assert "1,000 prompt (10 from cache) + 5" in spent(Usage(prompt_tokens=1000, cached_tokens=10, completion_tokens=5))
    assert one_line("a  b\n\tc") == "a b c"
