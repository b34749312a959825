"""`make setup` where the network is away or the user gives up: one message, and the next one goes on."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from services.pip import LOG, MARK, PipError, install
from services.sandbox.supervisor.build import program
from services.sandbox.templates.recipe import find
from services.stack.layout import CHECKOUT

pytestmark = pytest.mark.timeout(280)  # a virtual environment takes its time on a busy machine

NOWHERE = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}


def interpreter(folder: Path, script: str) -> str:
    """What stands for an interpreter: a script that does what pip would."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def run(*arguments: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=CHECKOUT,
        env=kept | env,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_no_network_is_one_message(tmp_path: Path) -> None:
    package = ["--target", str(tmp_path / "there"), "a-package-that-is-not-installed==1.0"]
    done = run("services.pip", "The packages", str(tmp_path), *package, env=NOWHERE)
    assert done.returncode == 1
    assert done.stderr.startswith("error: The packages could not be downloaded")
    for hint in ("PIP_INDEX_URL", "PIP_FIND_LINKS", "HTTPS_PROXY", "make setup", str(tmp_path / LOG)):
        assert hint in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    assert not (tmp_path / MARK).exists(), "nothing was written, so nothing has to be made anew"


def test_what_is_wrong_otherwise_is_what_pip_says_last(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES'; exit 1")
    with pytest.raises(PipError, match="DO NOT MATCH THE HASHES"):
        install(python, ["x"], what="The packages", folder=tmp_path)
    assert (tmp_path / MARK).exists()
    install(interpreter(tmp_path, "exit 0"), ["x"], what="The packages", folder=tmp_path)
    assert not (tmp_path / MARK).exists()


def test_an_interruption_leaves_the_mark(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "exec sleep 60")
    script = f"from pathlib import Path; from services.pip import *; install({python!r}, [], what='', folder=Path('.'))"
    script = f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); {script}"
    process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stderr=subprocess.DEVNULL)
    while not (tmp_path / LOG).exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (tmp_path / MARK).exists()


def test_a_template_without_network_is_one_message(tmp_path: Path) -> None:
    folder = tmp_path / "template"
    (folder / "recipes").mkdir(parents=True)
    recipe = 'name = "default"\npackages = ["a-package-that-is-not-installed==1.0"]\n'
    (folder / "recipes" / "default.toml").write_text(recipe)
    env = NOWHERE | {"LONGHAUL_RUNNER_TEMPLATE_DIR": str(folder)}
    done = run("services.cli.main", "template", "build", env=env)
    assert done.returncode == 3
    assert done.stderr.startswith("Error: The packages of the sandboxes' template default could not be downloaded")
    assert "Traceback" not in done.stderr
    assert not (folder / "current").exists()


def test_setup_fails_loudly_where_the_supervisor_cannot_be_built(tmp_path: Path) -> None:
    """No compiler, and no network to fetch one: without the program no command could ever run."""
    (tmp_path / find(tmp_path, "default").digest / "venv").mkdir(parents=True)  # the packages are there
    env = {**NOWHERE, "PATH": str(tmp_path), "LONGHAUL_RUNNER_TEMPLATE_DIR": str(tmp_path)}
    done = run("services.cli.main", "template", "build", env=env)
    assert done.returncode == 3
    assert "A compiler for the sandboxes' supervisor could not be downloaded" in done.stderr
    assert "apt install gcc" in done.stderr
    assert "Traceback" not in done.stderr
    assert not program(tmp_path).exists()


def test_setup_builds_the_supervisor(tmp_path: Path) -> None:
    (tmp_path / find(tmp_path, "default").digest / "venv").mkdir(parents=True)
    done = run("services.cli.main", "template", "build", env={"LONGHAUL_RUNNER_TEMPLATE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert os.access(program(tmp_path), os.X_OK)


@pytest.mark.parametrize("interrupted", [True, False])
def test_make_repairs_an_interrupted_installation_and_needs_nothing_otherwise(
    tmp_path: Path, interrupted: bool
) -> None:
    checkout = tmp_path / "my checkout"
    (checkout / ".venv" / "bin").mkdir(parents=True)
    interpreter(checkout / ".venv" / "bin", "exit 0")
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copyfile(CHECKOUT / name, checkout / name)
    (checkout / ".venv" / ".place").write_text(str(checkout))
    for name in (".packages", ".project", *([MARK] if interrupted else [])):
        (checkout / ".venv" / name).touch()
    env = {"PATH": os.environ["PATH"], "PWD": str(checkout)}
    done = subprocess.run(
        ["make", "-n", ".venv/.project"], cwd=checkout, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert ("sh .ci/python .venv" in done.stdout) is interrupted, done.stdout
    assert ("services.pip" in done.stdout) is interrupted, done.stdout
