"""Demos by name; their checks are commands, and none of them is in a workspace."""

import pytest

from services.cli.demo.catalogue import chosen, names
from services.cli.exits import CliError


def test_without_a_name_all_of_them() -> None:
    assert [demo.name for demo in chosen(None)] == names()
    assert [demo.name for demo in chosen("code_repair")] == ["code_repair"]


@pytest.mark.parametrize("name", ["", "..", "code_repair/workspace", "nothing"])
def test_an_unknown_name_is_refused_with_a_list(name: str) -> None:
    with pytest.raises(CliError, match="code_repair, market_analysis, parametric_part"):
        chosen(name)


def test_checks_are_commands_that_fit_into_a_task() -> None:
    for demo in chosen(None):
        assert demo.checks
        assert all(check.startswith("python") and len(check) <= 4_000 for check in demo.checks)
        assert not {path.name for path in demo.workspace.rglob("*")} & {
            path.name for path in demo.folder.glob("checks/*")
        }
