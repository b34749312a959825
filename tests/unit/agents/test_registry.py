"""Tools and roles agree, schemas are plain and never change by accident, and the reference page is true."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.contracts.errors import ErrorCode, FaultClass
from agents.contracts.ids import Role
from agents.roles import ROLES
from agents.tools.base import OBSERVATION_CAP_BYTES
from agents.tools.registry import TOOLS, describe, schemas, signature
from agents.tools.shell import DEFAULT_TIMEOUT_S

ROOT = Path(__file__).parents[3]
PLAIN = {"type", "enum", "const", "description", "default", "additionalProperties", "required", "properties", "items"}
EXPECTED = {
    Role.PLANNER: ["submit_plan"],
    Role.EXECUTOR: [
        "ask",
        "edit_file",
        "finish_step",
        "give_up",
        "read_file",
        "save_artifact",
        "send_message",
        "shell",
        "write_file",
    ],
    Role.REVIEWER: ["read_file", "send_message", "shell", "submit_review"],
}


@pytest.mark.parametrize("role", Role)
def test_a_role_has_these_tools_sorted_and_control_as_their_contracts_say(role: Role) -> None:
    spec = ROLES[role]
    assert list(spec.tools) == EXPECTED[role] == [schema.name for schema in schemas(role)]
    assert spec.control == tuple(name for name in spec.tools if TOOLS[name].contract.control)


def test_no_tool_is_without_a_role_and_control_tools_have_no_handler() -> None:
    assert set(TOOLS) == {name for spec in ROLES.values() for name in spec.tools}
    for name, tool in TOOLS.items():
        assert tool.name == name
        assert (tool.run is None) == tool.contract.control
        assert all(code.rule.fault is FaultClass.TOOL for code in tool.contract.errors)
        assert tool.contract.alternative is None or tool.contract.alternative in TOOLS


def test_every_code_of_a_tool_is_somebodys_but_those_of_any_reply() -> None:
    declared = {code for tool in TOOLS.values() for code in tool.contract.errors}
    any_reply = {ErrorCode.INVALID_ARGUMENTS, ErrorCode.UNKNOWN_TOOL, ErrorCode.TOOL_NOT_ALLOWED}
    any_reply |= {ErrorCode.APPROVAL_DENIED, ErrorCode.APPROVAL_EXPIRED}
    assert declared | any_reply == {code for code in ErrorCode if code.rule.fault is FaultClass.TOOL}


def nodes(schema: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return [schema, *(node for child in inner for node in nodes(child))]


@pytest.mark.parametrize("name", TOOLS)
def test_a_schema_is_plain_closed_and_sorted(name: str) -> None:
    (raw,) = {s.parameters_json for role in Role for s in schemas(role) if s.name == name}
    schema = json.loads(raw)
    assert raw == json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for node in nodes(schema):
        assert set(node) <= PLAIN
        assert isinstance(node["type"], str)
        assert node["type"] != "object" or node["additionalProperties"] is False
    assert set(schema["properties"]) == set(TOOLS[name].arguments.model_fields)


def test_a_field_that_is_called_title_is_not_lost() -> None:
    (schema,) = schemas(Role.PLANNER)
    step = json.loads(schema.parameters_json)["properties"]["steps"]["items"]
    assert step["required"] == ["id", "title", "instructions", "acceptance"]
    assert step["properties"]["title"] == {"type": "string"}
    assert step["properties"]["tier"] == {"type": "string", "enum": ["fast", "full"]}


def test_a_signature_tells_the_fields_of_objects_inside() -> None:
    steps = "{id, title, instructions, acceptance: [text, …], depends_on?: [text, …], resources?: [text, …], tier?}"
    assert signature(TOOLS["submit_plan"]) == f"{{steps: [{steps}, …], notes?}}"
    assert signature(TOOLS["submit_review"]) == "{verdict, findings?: [text, …], evidence?: [text, …]}"
    assert signature(TOOLS["shell"]) == "{command, timeout_s?}"


def test_schemas_are_the_same_bytes_in_every_process() -> None:
    code = (
        "from agents.tools.registry import schemas; from agents.contracts.ids import Role;"
        "print([s.model_dump_json() for r in Role for s in schemas(r)])"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {str([s.model_dump_json() for r in Role for s in schemas(r)]) + "\n"}


@pytest.mark.parametrize("role", Role)
def test_a_prompt_speaks_of_its_own_tools_only_and_tells_the_truth(role: Role) -> None:
    text = ROLES[role].prompt_file.read_text(encoding="utf-8")
    named = {name for name in TOOLS if re.search(rf"`{name}`", text)}
    assert named <= set(ROLES[role].tools)
    assert set(ROLES[role].control) <= named
    if "shell" in ROLES[role].tools:
        assert f"{DEFAULT_TIMEOUT_S:g} s unless you set `timeout_s`" in text
        assert f"{OBSERVATION_CAP_BYTES // 1024} KiB" in " ".join(text.split())
    assert text.isascii()


def test_the_reference_page_holds_the_tools_as_they_are() -> None:
    page = (ROOT / "docs/reference/tools.md").read_text(encoding="utf-8")
    assert describe() in page, "write it again: python -m tests.unit.agents.test_registry"


if __name__ == "__main__":
    _PAGE = ROOT / "docs/reference/tools.md"
    _HEAD, _, _REST = _PAGE.read_text(encoding="utf-8").partition("| tool |")
    _PAGE.write_text(_HEAD + describe() + _REST[_REST.index("\n\n") + 1 :], encoding="utf-8")
