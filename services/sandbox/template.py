"""The template: a read-only virtual environment that every sandbox has first on its PATH.

``python -m services.sandbox.template build DIR`` makes it from requirements-sandbox.lock. Scripts of a virtual
environment hold absolute paths; inside a sandbox it is always at `VENV`, so they are rewritten to that.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from services.pip import INTERRUPTED, PipError, install

VENV = "/opt/longhaul/venv"
LOCK = Path(__file__).parents[2] / "requirements-sandbox.lock"
CACHE = "matplotlib"


@dataclass(frozen=True, slots=True)
class Template:
    """A template's folder. `current` in it is a link to the version in use; versions are never changed."""

    folder: Path

    def venv(self) -> Path | None:
        """The virtual environment in use."""
        venv = (self.folder / "current").resolve() / "venv"
        return venv if venv.is_dir() else None

    def missing(self) -> str | None:
        """What to do where there is no template."""
        if self.venv() is not None:
            return None
        return f"no template at {self.folder}: python -m services.sandbox.template build {self.folder}"

    @staticmethod
    def base_prefix(venv: Path) -> Path:
        """Where the interpreter under a virtual environment lives."""
        return (venv / "bin" / "python").resolve().parents[1]

    def seed(self, private: Path, uid: int | None) -> None:
        """Make a new sandbox's home, with the caches that are dear to make (matplotlib's list of fonts)."""
        home = private / "home"
        target = home / CACHE
        target.mkdir(parents=True, exist_ok=True)
        source = (self.folder / "current").resolve() / CACHE
        for file in source.iterdir() if source.is_dir() else ():
            if file.is_file():
                shutil.copyfile(file, target / file.name)
        if uid is not None:
            for path in (home, target, *target.iterdir()):
                os.chown(path, uid, uid)


def version_of(lock: Path) -> str:
    """The name of the version that a lock and this interpreter give."""
    text = lock.read_bytes() + f"{sys.version}|{sys.base_prefix}|2".encode()
    return hashlib.sha256(text).hexdigest()[:16]


def build(folder: Path, lock: Path) -> Path:
    """Make the version for `lock` where it is missing, put it in use, remove older ones but one.

    Raises:
        FileNotFoundError: there is no such lock.
        PipError: the packages could not be installed; says what to do.
        subprocess.CalledProcessError: the environment could not be made.
    """
    version = version_of(lock)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    with open(folder / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        target = folder / version
        if not target.is_dir():
            building = folder / f"building-{version}"
            shutil.rmtree(building, ignore_errors=True)
            _make(building, lock)
            building.rename(target)
        _use(folder, version)
    return target


def _make(building: Path, lock: Path) -> None:
    venv = building / "venv"
    building.mkdir(mode=0o755)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    if lock.read_text().strip():
        install(python, ["-r", str(lock)], what="The sandboxes' packages", folder=building)
    _warm(building, python)
    installed = subprocess.run([*pip, "list", "--format=freeze"], check=True, capture_output=True, text=True).stdout
    (building / "packages.txt").write_text(installed)
    tools = [line.partition("==")[0] for line in installed.splitlines() if line.startswith(("pip==", "setuptools=="))]
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", *tools], check=True)
    _rewrite_scripts(venv)
    subprocess.run([python, "-m", "compileall", "-q", "-j", "2", str(venv / "lib")], check=False)
    for path in venv.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))


def _warm(building: Path, python: str) -> None:
    """Let matplotlib, where it is there, look at its fonts once and for all."""
    env = {"PATH": "/usr/bin:/bin", "MPLCONFIGDIR": str(building / CACHE), "HOME": str(building)}
    subprocess.run([python, "-c", "import matplotlib.font_manager"], env=env, check=False, stderr=subprocess.DEVNULL)


def _rewrite_scripts(venv: Path) -> None:
    here = str(venv).encode()
    for path in (venv / "bin").iterdir():
        if path.name.lower().startswith(("activate", "pip")):
            path.unlink()
        elif not path.is_symlink() and (text := path.read_bytes()).startswith(b"#!"):
            path.write_bytes(text.replace(here, VENV.encode(), 1))


def _use(folder: Path, version: str) -> None:
    link = folder / "current"
    before = os.readlink(link) if link.is_symlink() else None
    if before != version:
        temporary = folder / f"current.{os.getpid()}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(version)
        temporary.rename(link)
    keep = {version, before}  # the one before may still be mounted in a running sandbox
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink() and path.name not in keep:
            shutil.rmtree(path, ignore_errors=True)


def check(folder: Path, lock: Path) -> str | None:
    """What is wrong with a template, or None: it is there, of this lock and of this interpreter."""
    template = Template(folder)
    if (missing := template.missing()) is not None:
        return missing
    if (folder / "current").resolve().name != version_of(lock):
        return f"the template at {folder} was made for other packages or another Python; build it again"
    return None


def _build(folder: Path, lock: Path) -> int:
    try:
        print(build(folder, lock))
    except (PipError, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. `make setup` builds the template anew.", file=sys.stderr)
        return INTERRUPTED
    return 0


def main() -> None:
    """``build DIR`` or ``check DIR``, both with ``[--lock FILE]``; `check` exits with 1 where it has to be built."""
    parser = argparse.ArgumentParser(prog="services.sandbox.template")
    parser.add_argument("action", choices=["build", "check"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lock", type=Path, default=LOCK)
    options = parser.parse_args()
    if not options.lock.is_file():
        parser.error(f"{options.lock} is missing: it lists the packages of the sandbox template")
    if options.action == "build":
        sys.exit(_build(options.folder.resolve(), options.lock))
    if (wrong := check(options.folder.resolve(), options.lock)) is not None:
        sys.exit(wrong)


if __name__ == "__main__":
    main()
