"""The prices of the market analysis are what their script makes, whatever the Python."""

import importlib.util
from pathlib import Path

from services.cli.demo import catalogue


def test_the_script_makes_the_prices_that_are_there() -> None:
    (demo,) = catalogue.chosen("market_analysis")
    assert made(demo.folder / "make_prices.py") == (demo.workspace / "prices.csv").read_text(encoding="utf-8")


def made(script: Path) -> str:
    """What the script would write."""
    spec = importlib.util.spec_from_file_location("make_prices", script)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.text())
