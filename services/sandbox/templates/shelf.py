"""What templates there are, and which builds nobody needs any more."""

import fcntl
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from agents.contracts.base import Wire
from agents.contracts.sandbox import DEFAULT_TEMPLATE
from services.sandbox import tree
from services.sandbox.records import Meta, read
from services.sandbox.template import BUILDING, Template, link_of
from services.sandbox.templates.build import locked
from services.sandbox.templates.recipe import Recipe, TemplateError, files
from services.sandbox.templates.recipe import read as read_recipe

_BUILD = re.compile(r"[0-9a-f]{16}")


class Row(Wire):
    """A template. `old`: what is in use was built from another recipe, or under another Python. `used_by` counts the
    sandboxes that have the build in use."""

    name: str
    description: str = ""
    backends: str = ""
    state: Literal["built", "old", "not built", "broken"]
    digest: str = ""
    bytes: int = 0
    used_by: int = 0
    recipe: str
    detail: str = ""


def rows(folder: Path, runner: Path) -> list[Row]:
    """Every recipe, built or not. `runner` is the data directory of the runner whose sandboxes are counted."""
    users = used(runner)
    return [_row(folder, name, path, users) for name, path in files(folder).items()]


def _row(folder: Path, name: str, path: Path, users: Mapping[str, int]) -> Row:
    at = Template(folder, link_of(name)).at
    built = at.is_dir()
    try:
        recipe = read_recipe(path)
    except TemplateError as fault:
        return Row(name=name, state="broken", recipe=str(path), detail=str(fault))
    return Row(
        name=name,
        description=recipe.description,
        backends=_backends(recipe),
        state="not built" if not built else "built" if at.name == recipe.digest else "old",
        digest=at.name if built else "",
        bytes=size_of(at) if built else 0,
        used_by=users.get(at.name, 0) if built else 0,
        recipe=str(path),
    )


def _backends(recipe: Recipe) -> str:
    if recipe.only_image:
        return "docker, gvisor"
    return "namespace" if recipe.image is None else "namespace, docker, gvisor"


def used(runner: Path) -> Counter[str]:
    """How many sandboxes of a runner have which build."""
    metas = (read(path, Meta) for path in runner.glob("sandboxes/*/meta.json"))
    return Counter(meta.build for meta in metas if meta is not None)


def size_of(folder: Path) -> int:
    """The bytes that a folder takes on disk, a file with several names once."""
    seen: dict[int, int] = {}
    for at, _, names in os.walk(folder):
        for name in names:
            info = os.lstat(os.path.join(at, name))
            seen[info.st_ino] = info.st_blocks * 512
    return sum(seen.values())


class Pruned(Wire):
    """Builds that were removed, and those that would have been, but sandboxes have them."""

    removed: dict[str, int]
    in_use: tuple[str, ...]


def prune(folder: Path, runner: Path) -> Pruned:
    """Remove the builds that no recipe and no sandbox uses. One that a runner holds stays, whoever's it is."""
    removed: dict[str, int] = {}
    in_use: list[str] = []
    with locked(folder):
        for left in folder.glob(f"{BUILDING}*"):
            tree.delete(left)
        wanted, users = _wanted(folder), used(runner)
        for path in sorted(p for p in folder.iterdir() if _BUILD.fullmatch(p.name) and p.name not in wanted):
            size = size_of(path)
            if users[path.name] or not _removed(path):
                in_use.append(path.name)
            else:
                removed[path.name] = size
    return Pruned(removed=removed, in_use=tuple(in_use))


def _wanted(folder: Path) -> set[str]:
    """The builds in use of templates that have a recipe. The links of others go."""
    known = files(folder)
    for link in (folder / "named").glob("*"):
        if link.name not in known:
            link.unlink()
    return {Template(folder, link_of(name)).at.name for name in (DEFAULT_TEMPLATE, *known)}


def _removed(build: Path) -> bool:
    """Take a build away unless a runner holds it."""
    fd = os.open(build, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = build.with_name(f"{BUILDING}{build.name}.gone")
        build.rename(gone)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    tree.delete(gone)
    return True
