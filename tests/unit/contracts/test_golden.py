"""What older versions stored can still be read: golden files are written once and never edited.

A new model or event gets a sample in samples.py; ``python -m tests.unit.contracts.test_golden`` writes the files that
are missing.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agents.contracts.base import read_stored
from tests.unit.contracts.samples import samples

GOLDEN = Path(__file__).with_name("golden")
SAMPLES = samples()


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_stored_model_has_a_golden_file(name: str) -> None:
    assert (GOLDEN / f"{name}.json").exists()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_a_golden_file_is_read_without_loss(path: Path) -> None:
    stored = json.loads(path.read_text())
    model = type(SAMPLES[path.stem])
    assert _missing(stored, read_stored(model, stored).model_dump(mode="json")) == []
    assert read_stored(model, path.read_bytes()) == read_stored(model, stored)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_fields_of_a_newer_process_are_ignored_all_the_way_down(name: str) -> None:
    sample = SAMPLES[name]
    assert read_stored(type(sample), _with_news(sample.model_dump(mode="json"))) == sample


def _missing(stored: Any, read: Any, at: str = "") -> list[str]:
    """The places where `read` lost or changed something of `stored`; what it has beyond that is an addition."""
    if isinstance(stored, dict) and isinstance(read, dict):
        return [m for key, value in stored.items() for m in _missing(value, read.get(key), f"{at}.{key}")]
    if isinstance(stored, list) and isinstance(read, list) and len(stored) == len(read):
        return [m for n, pair in enumerate(zip(stored, read, strict=True)) for m in _missing(*pair, f"{at}[{n}]")]
    return [] if stored == read else [at]


def _with_news(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        news = {} if name in ("metadata", "tools", "rounds") else {"a_field_of_next_year": {"x": [1]}}
        return {**{key: _with_news(inner, key) for key, inner in value.items()}, **news}
    return [_with_news(inner) for inner in value] if isinstance(value, list) else value


def _write_missing(named: dict[str, BaseModel]) -> None:
    for name, sample in named.items():
        path = GOLDEN / f"{name}.json"
        if not path.exists():
            path.write_text(sample.model_dump_json(indent=1) + "\n")


if __name__ == "__main__":
    _write_missing(SAMPLES)
