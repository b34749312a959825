"""From options to a task's spec."""

from pathlib import Path

import pytest

from agents.contracts.task import Limits
from services.cli.exits import CliError
from services.cli.spec import limits_of, network_of, source_and_path, tools_of


def test_limits() -> None:
    assert limits_of(["tokens=100_000", "turns=7"]) == Limits(tokens=100_000, turns=7)


@pytest.mark.parametrize("wrong", ["tokens", "tokens=many", "unknown=1", "turns=0", "=5"])
def test_a_wrong_limit_is_refused_in_words(wrong: str) -> None:
    with pytest.raises(CliError, match="--limit"):
        limits_of([wrong])


def test_tools() -> None:
    assert tools_of(["shell=ask", "read_file=allow"]) == {"shell": "ask", "read_file": "allow"}
    assert tools_of([]) == {}


@pytest.mark.parametrize("wrong", ["shell", "shell=maybe", "=ask", "shell=ASK"])
def test_a_wrong_word_about_a_tool_is_refused(wrong: str) -> None:
    with pytest.raises(CliError, match="--tool"):
        tools_of([wrong])


def test_hosts() -> None:
    assert network_of(["PyPI.org", "*.example.org:443"]).allow == ("pypi.org", "*.example.org:443")
    assert network_of([]).allow == ()


@pytest.mark.parametrize("wrong", ["", "10.0.0.1", "https://pypi.org", "*", "pypi.org:0", "localhost"])
def test_a_host_that_is_none_is_refused_in_words(wrong: str) -> None:
    with pytest.raises(CliError, match=r"--allow .*pypi\.org"):
        network_of([wrong])


def test_a_file_with_and_without_a_place(tmp_path: Path) -> None:
    source = tmp_path / "data.csv"
    source.write_text("x")
    assert source_and_path(str(source)) == (source, "data.csv")
    assert source_and_path(f"{source}:in/d.csv") == (source, "in/d.csv")
    with pytest.raises(CliError, match="there is no file"):
        source_and_path(str(tmp_path / "none"))
