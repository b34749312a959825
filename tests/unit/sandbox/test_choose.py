"""A deployment whose tenants do not trust each other starts on nothing that shares the host's kernel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.sandbox.choose import too_weak
from services.settings import Settings

CASES = [
    ({}, True),
    ({"runner_backend": "docker"}, True),
    ({"multi_tenant": True}, False),
    ({"multi_tenant": True, "runner_backend": "docker"}, False),
    ({"multi_tenant": True, "runner_backend": "gvisor"}, True),
    ({"multi_tenant": True, "multi_tenant_allows": "namespace"}, True),
    ({"multi_tenant": True, "runner_backend": "docker", "multi_tenant_allows": "docker"}, True),
    ({"multi_tenant": True, "runner_backend": "docker", "multi_tenant_allows": "namespace"}, False),
]


@pytest.mark.parametrize(("asked", "enough"), CASES)
def test_what_is_enough(asked: dict[str, object], *, enough: bool) -> None:
    assert (too_weak(Settings.model_validate(asked)) is None) is enough


def test_a_runner_that_is_not_enough_does_not_start(tmp_path: Path) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "LONGHAUL_RUNNER_TOKEN": "t",
        "LONGHAUL_RUNNER_DATA_DIR": str(tmp_path / "data"),
        "LONGHAUL_MULTI_TENANT": "true",
    }
    command = [sys.executable, "-m", "services.sandbox.main"]
    done = subprocess.run(command, env=env, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "LONGHAUL_MULTI_TENANT_ALLOWS=namespace" in done.stderr
    assert not (tmp_path / "data").exists()
