"""A disk that fills up under running tasks: a real small file system, in a mount namespace of its own."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.stack.layout import CHECKOUT
from tests.support.small_disk import run_on

SIZE_MB = 600
BODY = str(Path(__file__).with_name("full_disk.py"))


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lh-test-disk-") as outer:
        Path(outer).chmod(0o755)  # as root the database's user must pass
        inner = Path(outer) / "small"
        inner.mkdir()
        monkeypatch.setenv("FULL_DISK", str(inner))
        monkeypatch.chdir(CHECKOUT)
        yield inner


@pytest.mark.timeout(320)
@pytest.mark.parametrize("name", ["stops_what_is_new_and_loses_nothing", "in_the_middle_of_a_command"])
def test_full_disk(place: Path, name: str) -> None:
    argv = ["-m", "pytest", "-q", "-p", "no:cacheprovider", BODY, "-k", name]
    try:
        done = run_on(place, SIZE_MB, argv, 300)
    except subprocess.TimeoutExpired:
        raise
    except subprocess.SubprocessError as error:
        if os.geteuid() == 0:
            raise
        pytest.skip(f"this machine lets no ordinary user mount a file system: {error}")
    assert done.returncode == 0, done.stdout[-8_000:]
    assert "1 passed" in done.stdout
