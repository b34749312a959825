"""The virtual environment of a template. Scripts of one hold absolute paths; inside it is always at `VENV`, so they
are rewritten to that."""

import re
import subprocess
import sys
from pathlib import Path

from services.pip import install
from services.sandbox.template import CACHE, VENV
from services.sandbox.templates.recipe import Recipe

_NAME = re.compile(r"[^A-Za-z0-9._-]")


def make(building: Path, recipe: Recipe) -> None:
    """Make ``venv`` with the recipe's packages in the folder of a build.

    Raises:
        PipError: the packages could not be installed; says what to do.
        subprocess.CalledProcessError: the environment could not be made.
    """
    venv = building / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    if wanted := _requirements(building, recipe):
        install(python, wanted, what=f"The packages of the sandboxes' template {recipe.name}", folder=building)
    _warm(building, python)
    _without_installer(building, python, recipe)
    _rewrite_scripts(venv)
    subprocess.run([python, "-m", "compileall", "-q", "-j", "2", str(venv / "lib")], check=False)
    for path in venv.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))


def _requirements(building: Path, recipe: Recipe) -> list[str]:
    """What pip is told. Wheels only: the build of a source package is a program that would run outside any sandbox."""
    wheels = ["--only-binary", ":all:"]
    if recipe.lock is not None:
        return [*wheels, "--require-hashes", "-r", recipe.lock] if recipe.requirements.strip() else []
    file = building / "requirements.txt"
    file.write_text("\n".join(recipe.packages), encoding="utf-8")
    return [*wheels, "-r", str(file)] if recipe.packages else []


def _warm(building: Path, python: str) -> None:
    """Let matplotlib, where it is there, look at its fonts once and for all."""
    env = {"PATH": "/usr/bin:/bin", "MPLCONFIGDIR": str(building / CACHE), "HOME": str(building)}
    subprocess.run([python, "-c", "import matplotlib.font_manager"], env=env, check=False, stderr=subprocess.DEVNULL)


def _without_installer(building: Path, python: str, recipe: Recipe) -> None:
    """Take pip and setuptools away, which came with the environment, unless the recipe has them."""
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    installed = subprocess.run([*pip, "list", "--format=freeze"], check=True, capture_output=True, text=True).stdout
    (building / "packages.txt").write_text(installed)
    wanted = {_NAME.split(line, maxsplit=1)[0] for line in (*recipe.requirements.splitlines(), *recipe.packages)}
    there = {line.partition("==")[0] for line in installed.splitlines()}
    if unasked := sorted(there & {"pip", "setuptools"} - wanted):
        subprocess.run([*pip, "uninstall", "--quiet", "--yes", *unasked], check=True)


def _rewrite_scripts(venv: Path) -> None:
    here = str(venv).encode()
    for path in (venv / "bin").iterdir():
        if path.name.lower().startswith("activate"):
            path.unlink()
        elif not path.is_symlink() and (text := path.read_bytes()).startswith(b"#!"):
            path.write_bytes(text.replace(here, VENV.encode(), 1))
