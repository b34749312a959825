"""Builds templates. A build is made beside its place and renamed: it is whole or not there; two that build at once
build once."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.pip import PipError
from services.sandbox import tree
from services.sandbox.alone import alone
from services.sandbox.template import BUILDING, FACTS, Facts, link_of
from services.sandbox.templates import environment, setup
from services.sandbox.templates.recipe import Recipe, TemplateError


def build(folder: Path, recipe: Recipe) -> Path:
    """The build of a recipe, made where it is missing, and in use for new sandboxes from now on.

    Raises:
        TemplateError: with what to do.
    """
    with locked(folder):
        for left in folder.glob(f"{BUILDING}*"):
            tree.delete(left)
        target = folder / recipe.digest
        if not target.is_dir():
            building = folder / f"{BUILDING}{recipe.digest}"
            _make(building, recipe)
            building.rename(target)
        _use(folder / link_of(recipe.name), target)
    return target


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only one who changes what is in the templates' folder."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    with alone(folder / "lock"):
        yield


def _make(building: Path, recipe: Recipe) -> None:
    building.mkdir(mode=0o755)
    facts = Facts(env=recipe.env, path=recipe.path, image=recipe.image)
    (building / FACTS).write_text(facts.model_dump_json(), encoding="utf-8")
    if recipe.only_image:
        return
    try:
        environment.make(building, recipe)
    except PipError as fault:
        raise TemplateError(str(fault)) from None
    except subprocess.CalledProcessError as fault:
        raise TemplateError(f"No virtual environment could be made: {fault}") from None
    if recipe.setup:
        setup.run(building, recipe)


def _use(link: Path, target: Path) -> None:
    link.parent.mkdir(exist_ok=True)
    link.parent.chmod(0o755)
    if link.is_symlink() and link.resolve() == target.resolve():
        return
    temporary = link.with_name(f".{link.name}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target.name if link.parent == target.parent else f"../{target.name}")
    temporary.rename(link)
