"""The reference is true: each setting, error code and event type stands in it as it is in the code."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pydantic_settings import BaseSettings

from agents.contracts.errors import ErrorCode
from gpu.settings import GpuSettings
from services.settings import Settings
from tests.support.reference import EVENTS, events, kinds

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def _rows(page: str) -> list[list[str]]:
    lines = (REFERENCE / page).read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]


def test_every_error_code_with_its_rule() -> None:
    documented = {row[0].strip("`"): row[1:] for row in _rows("errors.md")}
    assert set(documented) == set(ErrorCode)
    for code in ErrorCode:
        status, retry, who, meaning = documented[code.value]
        rule = code.rule
        assert (status, retry, who) == (str(rule.status), "yes" if rule.retryable else "no", rule.fault.value), code
        assert len(meaning) > 10


def test_every_event_type() -> None:
    assert len(kinds()) > 40
    assert EVENTS.read_text() == events(), "run `make docs`"


@pytest.mark.parametrize("settings", [Settings, GpuSettings])
def test_every_setting_with_its_default(settings: type[BaseSettings]) -> None:
    documented = {name: row[1] for row in _rows("settings.md") for name in re.findall(r"`(LONGHAUL_\w+)`", row[0])}
    for name, field in settings.model_fields.items():
        variable = "LONGHAUL_" + name.upper()
        assert variable in documented, f"{variable} is missing in docs/reference/settings.md"
        assert documented[variable] == _shown(field.default), variable


def test_no_setting_that_does_not_exist() -> None:
    known = {"LONGHAUL_" + name.upper() for name in {**Settings.model_fields, **GpuSettings.model_fields}}
    known |= {"LONGHAUL_DATA_DIR", "LONGHAUL_PORT", "LONGHAUL_URL", "LONGHAUL_API_KEY"}
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("*/*/README.md")]
    named = {
        (page.name, name) for page in pages for name in re.findall(r"\bLONGHAUL_[A-Z0-9_]*[A-Z0-9]\b", page.read_text())
    }
    assert not {(page, name) for page, name in named if name not in known}


def test_the_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text


def test_links_between_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/*/README.md"), *ROOT.glob("*/README.md")]
    broken = [
        (str(page.relative_to(ROOT)), target)
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


def _shown(default: Any) -> str:
    value = default.get_secret_value() if isinstance(default, SecretStr) else default
    if value is None:
        return "none"
    return "empty" if value == "" else str(value)
