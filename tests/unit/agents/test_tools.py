"""Each tool: what it does with its hands, and what the model reads of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.contracts.errors import ErrorCode, FaultClass, Fenced, LonghaulError
from agents.contracts.network import Denial, DenialReason
from agents.contracts.sandbox import ExecState, ExecStatus
from agents.contracts.tool import ToolResult
from agents.tools import text
from agents.tools.base import OBSERVATION_CAP_BYTES
from agents.tools.control import accepted, postponed
from agents.tools.faults import ADVICE, observe
from agents.tools.registry import TOOLS, execute
from agents.tools.shell import observation
from tests.unit.agents import make
from tests.unit.agents.hands import DictHands

E = ErrorCode
SIGKILLED = 137


async def use(name: str, hands: DictHands, **arguments: Any) -> ToolResult:
    tool = TOOLS[name]
    return await execute(tool, hands, tool.arguments.model_validate(arguments))


# --- shell --------------------------------------------------------------------------------------------------------
async def test_shell_runs_with_its_timeout_and_shows_output_and_exit_code() -> None:
    hands = DictHands(answer=make.exec_status("1 failed\n", exit_code=1))
    seen = await use("shell", hands, command="pytest")
    await use("shell", hands, command="make", timeout_s=900)
    assert hands.commands == [("pytest", 120.0), ("make", 900.0)]
    assert (seen.content, seen.exit_code, seen.error_code, seen.duration_ms, seen.ok) == ("1 failed", 1, None, 7, True)


def test_shell_without_output_says_so() -> None:
    assert observation(make.exec_status("\n"), 120).content == "(no output)"


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "words"),
    [
        (
            make.exec_status("x", reason="timeout", exit_code=SIGKILLED),
            E.EXEC_TIMEOUT,
            None,
            "did not end within 2.5 s",
        ),
        (make.exec_status("x", reason="killed", exit_code=SIGKILLED), E.EXEC_KILLED, None, "task was cancelled"),
        (make.exec_status("x", reason="oom", exit_code=SIGKILLED), E.EXEC_KILLED, None, "ran out of memory"),
        (make.exec_status("x", reason="output_limit", exit_code=SIGKILLED), E.EXEC_KILLED, None, "printed more"),
        (make.exec_status("x", reason="lost", exit_code=None), E.EXEC_OUTCOME_UNKNOWN, None, "not known"),
        (make.exec_status("x", state=ExecState.LOST, exit_code=None), E.EXEC_OUTCOME_UNKNOWN, None, "not known"),
        (make.exec_status("x", state=ExecState.RUNNING, exit_code=None), E.EXEC_OUTCOME_UNKNOWN, None, "not known"),
        (make.exec_status("x", reason="signal", exit_code=139), None, 139, "died of signal 11"),
        (make.exec_status("x", exit_code=124), None, 124, "x"),
    ],
)
def test_every_end_of_a_command(status: ExecStatus, code: ErrorCode | None, exit_code: int | None, words: str) -> None:
    seen = observation(status, 2.5)
    assert (seen.error_code, seen.exit_code) == (code, exit_code)
    assert seen.content.startswith("x")
    assert words in seen.content
    assert code is None or (ADVICE[code] in seen.content) == (status.reason != "killed")


def test_what_the_network_refused_is_said_with_every_end() -> None:
    denied = (
        Denial(host="evil.org", port=443, reason=DenialReason.HOST_NOT_ALLOWED),
        Denial(host="", port=0, reason=DenialReason.BAD_REQUEST),
    )
    for status in (make.exec_status("x", denied=denied), make.exec_status("x", denied=denied, reason="timeout")):
        seen = observation(status, 120).content
        assert "refused evil.org:443 (host_not_allowed), (no host):0 (bad_request)" in seen
        assert seen.startswith("x\n")
    assert "network" not in observation(make.exec_status("x"), 120).content


def test_a_flood_keeps_both_ends_and_says_what_is_missing() -> None:
    lines = [f"line {n}" for n in range(100_000)]
    whole = "\n".join(lines)
    seen = observation(make.exec_status(whole), 120).content
    assert len(seen.encode()) <= OBSERVATION_CAP_BYTES
    head, marker, tail = seen.partition("\n… ")
    left_out, _, tail = tail.partition(" bytes left out here …\n")
    assert head.startswith("line 0\n")
    assert tail.endswith("line 99999")
    assert marker
    assert set(head.split("\n")) | set(tail.split("\n")) <= set(lines)
    assert int(left_out) == len(whole) - len(head) - 1 - len(tail)


def test_what_the_runner_left_out_is_counted_too() -> None:
    status = make.exec_status("a\n" * 20_000, truncated=True, total_bytes=10**9)
    seen = observation(status, 120).content
    assert "9999" in seen.partition(" bytes left out here")[0].rpartition("… ")[2]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m\n", "red"),
        ("\x1b]0;title\x07ok", "ok"),
        (" 1%\r 50%\r100%\nend", "100%\nend"),
        ("100%\r", "100%"),
        ("dos\r\nlines\r\n", "dos\nlines"),
        ("a\x00b\x08", "a\ufffdb\ufffd"),
        ("tab\tstays ä", "tab\tstays ä"),
    ],
)
def test_terminal_noise_does_not_reach_the_model(raw: str, shown: str) -> None:
    assert observation(make.exec_status(raw), 120).content == shown


@given(st.text(max_size=400), st.integers(300, 500))
def test_a_cap_holds_and_never_splits_a_character(body: str, limit: int) -> None:
    capped = text.cap(body * 3, limit)
    assert len(capped.text.encode("utf-8", "replace")) <= limit
    assert "\ufffd" not in capped.text or "\ufffd" in body
    assert (capped.left_out == 0) == (len((body * 3).encode("utf-8", "replace")) <= limit)


@given(st.text())
def test_clean_text_can_be_stored_anywhere(body: str) -> None:
    cleaned = text.clean(body + "\x1b[0m\ud800\x00")
    cleaned.encode()
    assert not set(cleaned) & {chr(n) for n in range(32) if chr(n) not in "\t\n"}
    assert text.clean(cleaned) == cleaned


# --- files --------------------------------------------------------------------------------------------------------
async def test_read_file_numbers_lines_and_says_where_to_go_on() -> None:
    hands = DictHands({"a.py": "".join(f"x{n}\n" for n in range(1, 11))})
    seen = await use("read_file", hands, path="a.py", offset=3, limit=2)
    assert seen.content == "a.py: lines 3 to 4 of 10, 31 bytes in all\n3\tx3\n4\tx4\n… 6 more lines: offset=5 …"
    rest = await use("read_file", hands, path="a.py", offset=9)
    assert rest.content.endswith("9\tx9\n10\tx10")


async def test_read_file_of_nothing() -> None:
    hands = DictHands({"empty": "", "short": "a\n", "blank": "\n"})
    assert "is empty" in (await use("read_file", hands, path="empty")).content
    assert "no line 9; the file has 1 lines" in (await use("read_file", hands, path="short", offset=9)).content
    assert (await use("read_file", hands, path="blank")).content.endswith("\n1\t")


async def test_read_file_shows_whole_lines_within_the_cap_and_loses_none() -> None:
    lines = [f"{n} " + "ä" * 100 for n in range(1, 301)]
    hands = DictHands({"a": "\n".join(lines)})
    offset, got = 1, []
    while True:
        seen = (await use("read_file", hands, path="a", offset=offset)).content
        assert len(seen.encode()) <= OBSERVATION_CAP_BYTES
        got += [line.split("\t", 1)[1] for line in seen.split("\n")[1:] if "\t" in line]
        if "more lines: offset=" not in seen:
            break
        offset = int(seen.rpartition("offset=")[2].split()[0])
    assert got == lines


async def test_a_line_without_end_is_shortened() -> None:
    seen = await use("read_file", DictHands({"min.js": "x" * 1_000_000}), path="min.js")
    assert len(seen.content) < 3_000
    assert "998000 more characters" in seen.content


async def test_write_and_save() -> None:
    hands = DictHands()
    assert (await use("write_file", hands, path="a", content="hi\n")).content == "created a, 3 bytes"
    assert (await use("write_file", hands, path="a", content="")).content == "replaced a, 0 bytes"
    hands.files["plot.png"] = "png"
    kept = await use("save_artifact", hands, path="plot.png", media_type="image/png")
    assert kept.content.startswith("kept plot.png, 3 bytes, image/png, sha256 ")
    assert (await use("save_artifact", hands, path="none")).error_code is E.FILE_NOT_FOUND


CODE = "def area(w, h):\n    return w + h\n\n\ndef twice(x):\n    return x * 2\n"


async def test_edit_file_replaces_once() -> None:
    hands = DictHands({"a.py": CODE})
    seen = await use("edit_file", hands, path="a.py", old="w + h", new="w * h\n")
    assert seen.ok
    assert "1 line replaced by 1 line" in seen.content
    assert "w * h" in hands.files["a.py"]


@pytest.mark.parametrize(
    ("content", "old", "words"),
    [
        (CODE, "  return w + h", ""),
        (
            CODE,
            "def area(w, h):\n\treturn w + h",
            "only with other blanks or indentation:\n1\tdef area(w, h):\n2\t    return",
        ),
        (CODE, "2\t    return w + h", "line numbers"),
        (CODE, "return x * 3", "nearest lines are:\n6\t    return x * 2"),
        (CODE, "zzzzqqqq", "nothing in the file is like it"),
        (CODE.replace("\n", "\r\n"), "w, h):\n    return", "ends its lines with \\r\\n"),
        ("", "anything", "nothing in the file is like it"),
    ],
)
async def test_a_missed_edit_teaches(content: str, old: str, words: str) -> None:
    hands = DictHands({"a.py": content})
    seen = await use("edit_file", hands, path="a.py", old=old, new="new")
    if not words:
        assert seen.ok
        return
    assert seen.error_code is E.EDIT_NO_MATCH
    assert words in seen.content
    assert seen.content.startswith("a.py: ")
    assert hands.files["a.py"] == content


async def test_an_ambiguous_edit_says_where() -> None:
    seen = await use("edit_file", DictHands({"a.py": CODE}), path="a.py", old="return ", new="")
    assert seen.error_code is E.EDIT_AMBIGUOUS
    assert "2 times, at lines 2, 6." in seen.content


# --- faults -------------------------------------------------------------------------------------------------------
TOOL_CODES = [code for code in ErrorCode if code.rule.fault is FaultClass.TOOL]
WORK = {
    "shell": {"command": "ls"},
    "read_file": {"path": "a"},
    "write_file": {"path": "a", "content": ""},
    "edit_file": {"path": "a", "old": "x", "new": "y"},
    "save_artifact": {"path": "a"},
    "send_message": {"to": "planner", "text": "hello"},
}


@pytest.mark.parametrize("code", TOOL_CODES)
def test_every_code_of_a_tool_has_advice(code: ErrorCode) -> None:
    seen = observe("shell", code, "it went wrong")
    assert seen.error_code is code
    assert not seen.ok
    assert seen.content == f"it went wrong\n{ADVICE[code]}"


def test_advice_is_for_tool_codes_only() -> None:
    assert set(ADVICE) == set(TOOL_CODES)


@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("code", TOOL_CODES)
async def test_a_fault_of_the_tool_becomes_an_observation(name: str, code: ErrorCode) -> None:
    hands = DictHands()
    hands.fault = LonghaulError(code, "went wrong")
    seen = await use(name, hands, **WORK[name])
    assert (seen.tool, seen.error_code, seen.exit_code) == (name, code, None)
    assert "went wrong" in seen.content


@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize(
    "fault", [Fenced(), *(LonghaulError(c, "down") for c in ErrorCode if c.rule.fault is FaultClass.INFRASTRUCTURE)]
)
async def test_a_fault_of_the_infrastructure_never_does(name: str, fault: LonghaulError) -> None:
    hands = DictHands()
    hands.fault = fault
    with pytest.raises(LonghaulError) as raised:
        await use(name, hands, **WORK[name])
    assert raised.value is fault


class LostAfterEdit(DictHands):
    """The edit misses, and then the file cannot be looked at."""

    def __init__(self, after: LonghaulError) -> None:
        super().__init__({"a": "words"})
        self.after = after

    async def read(self, path: str, offset: int, limit: int) -> Any:
        raise self.after


@pytest.mark.parametrize(("code", "seen_by_model"), [(E.SANDBOX_LOST, False), (E.FILE_TOO_LARGE, True)])
async def test_explaining_a_missed_edit_hides_no_fault(code: ErrorCode, seen_by_model: bool) -> None:
    hands = LostAfterEdit(LonghaulError(code, "then this"))
    if seen_by_model:
        assert (await use("edit_file", hands, path="a", old="x", new="y")).error_code is E.EDIT_NO_MATCH
    else:
        with pytest.raises(LonghaulError, match="SANDBOX_LOST"):
            await use("edit_file", hands, path="a", old="x", new="y")


async def test_a_control_tool_has_no_handler() -> None:
    for name in ("finish_step", "give_up", "submit_plan", "submit_review"):
        assert accepted(name).ok
        assert postponed(name).ok
        assert accepted(name) != postponed(name)
        with pytest.raises(ValueError, match=name):
            await execute(TOOLS[name], DictHands(), make.plan())
