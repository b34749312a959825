from pathlib import Path

import pytest

from tests.unit.snapshots.room import Room


@pytest.fixture
def room(tmp_path: Path) -> Room:
    """A folder to keep, a shelf, and what was seen last."""
    return Room(tmp_path)
