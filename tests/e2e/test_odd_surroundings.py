"""The demo where everything is odd at once: spaces and umlauts in the paths, no network, no HOME, no terminal, an ASCII
locale, 40 columns, proxies that nobody answers at, a strict umask, few descriptors, a /dev/shm of 1 MB that is not for
everybody, a localhost that is ::1.

What fails here alone is found by taking the oddities away one by one.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.stack.layout import CHECKOUT, default_data_dir
from tests.support.apart import Apart
from tests.support.stack import new_data_dir

pytestmark = pytest.mark.timeout(600)

PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy")
DESCRIPTORS = 256


@pytest.fixture
def place() -> Iterator[Path]:
    outer = new_data_dir().parent
    yield outer
    shutil.rmtree(outer, ignore_errors=True)


@pytest.fixture
def checkout(place: Path) -> Path:
    """The code alone, somewhere else."""
    copy = place / "my odd cöpy"
    for name in ("agents", "workflows", "services", "gpu"):
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(CHECKOUT / name, copy / name, ignore=ignored)
    for name in ("requirements-sandbox.lock", "pyproject.toml"):
        shutil.copyfile(CHECKOUT / name, copy / name)
    return copy


def odd_environment() -> dict[str, str]:
    template = os.environ.get("LONGHAUL_RUNNER_TEMPLATE_DIR") or str(default_data_dir() / "template")
    odd = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "dumb", "COLUMNS": "40"}
    odd |= {"TMPDIR": "/nonexistent", "ALL_PROXY": "socks5://127.0.0.1:9", "LONGHAUL_REPLAY_PACE_MS": "0"}
    odd |= dict.fromkeys(PROXIES, "http://127.0.0.1:9")
    return odd | {"PATH": os.environ["PATH"], "LONGHAUL_RUNNER_TEMPLATE_DIR": template}


def test_demo(checkout: Path, place: Path) -> None:
    hosts = place / "hosts"
    hosts.write_text("::1 localhost\n")
    apart = Apart()
    surroundings = (
        apart.with_small_disk(Path("/dev/shm"), 1),
        apart.with_file(Path("/etc/hosts"), hosts),
        apart.offline(),
    )

    def odd() -> None:
        for enter in surroundings:
            enter()
        os.umask(0o077)
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    data = place / "dätä of mine" / "x"
    done = subprocess.run(
        [sys.executable, "-m", "services.cli.main", "demo", "code_repair", "--data-dir", str(data), "--port", "0"],
        cwd=checkout,
        env=odd_environment(),
        preexec_fn=odd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=580,
        check=False,
    )
    said = (done.stdout + done.stderr).decode("ascii")  # what the terminal knows, and nothing else
    assert done.returncode == 0, said
    assert "completed" in said
    assert "Traceback" not in said
    assert "\x1b" not in said
    assert json.loads((data / "run.json").read_text(encoding="utf-8"))["checkout"] == str(checkout)
