"""Builds the supervisor where it is missing or old: ``python -m services.sandbox.supervisor.build DIR``.

The machine's compiler is taken where it can link statically; else zig's, which is fetched for this once.
"""

import argparse
import hashlib
import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from services.pip import INTERRUPTED, PipError, install
from services.sandbox.alone import alone

SOURCES = Path(__file__).parent
LOCK = Path(__file__).parents[3] / "requirements-compiler.lock"
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s")
COMPILERS = ("cc", "gcc", "clang")
KEPT = 16
UNUSED_S = 30 * 86_400.0


class BuildError(Exception):
    """It could not be built; the message says why and what to do."""


def digest() -> str:
    """The name that these sources have on this kind of machine."""
    found = hashlib.sha256(" ".join((*FLAGS, platform.machine())).encode())
    for path in sorted(SOURCES.glob("*.[ch]")):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def program(folder: Path) -> Path:
    """Where the program for these sources is, or will be, in `folder`."""
    return folder / f"supervisor-{digest()}"


def build(folder: Path, *, fetch: bool = True) -> Path:
    """The program in `folder`, made where it is missing; of older ones a few stay, for other checkouts.

    `fetch`: also where this machine has no compiler of its own (100 MB are downloaded, and removed again).

    Raises:
        BuildError: with what to do.
    """
    target = program(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder / "supervisor.lock"):
        if target.exists():
            target.touch()  # it is in use: others go first
        else:
            _make(target, fetch)
        _prune(folder)
    return target


def _prune(folder: Path) -> None:
    """Each checkout that shares the folder has one of these, and touches it as it starts a stack."""
    built = sorted((path.stat().st_mtime, path) for path in folder.glob("supervisor-*"))
    for touched_at, path in built[:-KEPT]:
        if touched_at < time.time() - UNUSED_S:
            path.unlink()


def _make(target: Path, fetch: bool) -> None:
    making = target.with_name(f"making-{target.name}")
    own = next(filter(shutil.which, COMPILERS), None)
    wrong = [_compile([own], making)] if own is not None else []
    if fetch and (not wrong or wrong[0] is not None):
        with tempfile.TemporaryDirectory(prefix="longhaul-zig-") as folder:
            wrong.append(_compile(_zig(Path(folder)), making))
    if not wrong or wrong[-1] is not None:
        raise BuildError("the supervisor could not be built. The compilers said:\n" + "\n".join(filter(None, wrong)))
    making.chmod(0o755)
    making.rename(target)


def _zig(folder: Path) -> list[str]:
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        try:
            install(
                sys.executable,
                ["--target", str(folder), "--no-deps", "--require-hashes", "-r", str(LOCK)],
                what="A compiler for the sandboxes' supervisor",
                folder=folder,
            )
        except PipError as error:
            raise BuildError(f"{error}\nOr install a C compiler: apt install gcc libc6-dev") from None
        zig = folder / "ziglang" / "zig"
    else:
        zig = Path(found.origin).parent / "zig"
    return [str(zig), "cc", "-target", f"{platform.machine()}-linux-musl"]


def _compile(compiler: list[str], making: Path) -> str | None:
    command = [*compiler, *FLAGS, "-o", str(making), *map(str, sorted(SOURCES.glob("*.c")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"{compiler[0]}: {done.stderr}"


def main() -> int:
    """``DIR [--here]``: with `--here` nothing is fetched."""
    parser = argparse.ArgumentParser(prog="services.sandbox.supervisor.build")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--here", action="store_true", help="only with a compiler of this machine")
    options = parser.parse_args()
    try:
        print(build(options.folder.resolve(), fetch=not options.here))
    except (BuildError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. `make setup` builds the supervisor anew.", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
