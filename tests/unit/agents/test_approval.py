"""The approval policy, row by row."""

import json
from typing import Any

import pytest

from agents.contracts.approval import approval_id, arguments_digest
from agents.contracts.errors import ErrorCode
from agents.contracts.ids import Role
from agents.contracts.model import ModelReply, Usage
from agents.contracts.tool import Risk, ToolCall
from agents.policy.approval import asks, policy, restrict
from agents.tools.parse import CheckedCall, check_reply

R, W, X, I = Risk.READ, Risk.WRITE, Risk.EXTERNAL, Risk.IRREVERSIBLE  # noqa: E741 - columns of the table


@pytest.mark.parametrize(
    ("said", "read", "write", "external", "irreversible"),
    [
        (None, "allow", "allow", "ask", "ask"),
        ("allow", "allow", "allow", "allow", "allow"),
        ("ask", "ask", "ask", "ask", "ask"),
        ("deny", "deny", "deny", "deny", "deny"),
        # unknown values fail closed
        ("", "deny", "deny", "deny", "deny"),
        ("Allow", "deny", "deny", "deny", "deny"),
        ("allow ", "deny", "deny", "deny", "deny"),
        ("allow_once", "deny", "deny", "deny", "deny"),
    ],
)
def test_the_table(said: str | None, read: str, write: str, external: str, irreversible: str) -> None:
    assert [policy(risk, said) for risk in (R, W, X, I)] == [read, write, external, irreversible]
    assert set(Risk) == {R, W, X, I}


def checked(*calls: tuple[str, dict[str, Any]]) -> tuple[CheckedCall, ...]:
    made = tuple(ToolCall(id=f"c{n}", name=name, arguments=json.dumps(args)) for n, (name, args) in enumerate(calls))
    reply = ModelReply(tool_calls=made, finish_reason="tool_calls", usage=Usage(), model="m", tier="fast")
    return check_reply(Role.EXECUTOR, reply).calls


def test_a_denied_call_is_refused_and_the_others_are_not() -> None:
    calls = checked(("shell", {"command": "ls"}), ("read_file", {"path": "a"}))
    denied, read = restrict(calls, {"shell": "deny", "read_file": "allow"})
    assert denied.refusal is not None
    assert denied.refusal.error_code is ErrorCode.TOOL_NOT_ALLOWED
    assert "does not allow shell" in denied.refusal.content
    assert denied.tool is None
    assert read is calls[1]


def test_only_sound_calls_are_asked_about() -> None:
    everything = {"shell": "ask", "read_file": "ask"}
    sound, wrong = checked(("shell", {"command": "ls"}), ("read_file", {"nonsense": 1}))
    assert asks(sound, everything)
    assert not asks(wrong, everything)
    assert not asks(sound, {})
    (finish,) = checked(("finish_step", {"summary": "done"}))
    assert finish.control
    assert not asks(finish, {"finish_step": "ask"})
    assert restrict((finish,), {"finish_step": "deny"}) == (finish,)


def test_an_approval_is_of_a_call_with_its_arguments() -> None:
    one, other = arguments_digest('{"command": "ls"}'), arguments_digest('{"command": "ls "}')
    assert one != other
    ids = {approval_id(key, sha, n) for key in ("k/c0", "k/c1") for sha in (one, other) for n in (1, 2)}
    assert len(ids) == 8
