"""Both sides of the supervisor's protocol have the same numbers, and so has its page."""

import re
from enum import IntEnum, IntFlag
from pathlib import Path

import pytest

from services.sandbox.supervised import protocol
from services.sandbox.supervisor import build

HEADER = (build.SOURCES / "protocol.h").read_text()
PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "supervisor.md").read_text()
PREFIXES: dict[type[IntEnum | IntFlag], str] = {
    protocol.Message: "MSG_",
    protocol.Flag: "FLAG_",
    protocol.ExecFlag: "EXEC_",
    protocol.Stream: "STREAM_",
    protocol.State: "STATE_",
    protocol.Reason: "REASON_",
    protocol.EntryBit: "ENTRY_",
    protocol.Fault: "FAULT_",
}


@pytest.mark.parametrize("kind", PREFIXES, ids=lambda kind: kind.__name__)
def test_numbers_are_those_of_the_header(kind: type[IntEnum | IntFlag]) -> None:
    found = {name: int(value) for name, value in re.findall(rf"\b{PREFIXES[kind]}(\w+) = (\d+)", HEADER)}
    assert found == {member.name: member.value for member in kind}


@pytest.mark.parametrize("name", ["HEADER_BYTES", "MAX_PAYLOAD", "MAX_ID", "NONCE_BYTES"])
def test_sizes_are_those_of_the_header(name: str) -> None:
    assert f"#define {name} {getattr(protocol, name)}\n" in HEADER


def test_every_fault_and_request_is_on_the_page() -> None:
    for fault in protocol.Fault:
        assert f"{fault.value} {fault.name}" in PAGE
    for message in protocol.Message:
        if message < 65:
            assert f"| {message.value} {message.name.removeprefix('FILE_')} |" in PAGE, message


def test_the_program_is_named_by_its_sources(tmp_path: Path) -> None:
    assert build.program(tmp_path).name == f"supervisor-{build.digest()}"
