"""Recipes: what goes into templates, one TOML file each. Those in DIR/recipes go before the shipped ones."""

import hashlib
import json
import platform
import sys
import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, field_validator

from agents.contracts.base import Edge
from agents.contracts.sandbox import DEFAULT_TEMPLATE, TemplateName
from services.sandbox.template import Template, link_of

SHIPPED = Path(__file__).parent / "recipes"
FORMAT = 2
"""How builds are laid out; raised where older ones would not do any more."""
_Line = Annotated[str, Field(min_length=1, max_length=10_000)]


class TemplateError(Exception):
    """A template cannot be made; the message says why and what to do."""


class Recipe(Edge):
    """A recipe. Where there is a `lock`, `packages` says what it was made from, and what is installed is in it, hashes
    checked. `setup` runs once, in a sandbox in which `MADE` can be written. `image` is an engine's."""

    name: TemplateName
    description: Annotated[str, Field(max_length=500)] = ""
    packages: tuple[_Line, ...] = ()
    lock: str | None = None
    setup: tuple[_Line, ...] = ()
    env: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")], Annotated[str, Field(max_length=4_000)]
    ] = {}
    path: tuple[Annotated[str, Field(pattern=r"^/[^:]*$")], ...] = ()
    image: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    requirements: str = ""
    """The lock's text; read with the recipe."""
    shipped: bool = False

    @field_validator("packages")
    @classmethod
    def _no_options(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [line for line in packages if line.lstrip().startswith("-") or "\n" in line]:
            raise ValueError(f"{wrong[0]!r} is no requirement")
        return packages

    @property
    def only_image(self) -> bool:
        """Whether an engine has all of it, and nothing is built here."""
        return self.image is not None and not (self.packages or self.lock or self.setup)

    @property
    def digest(self) -> str:
        """The name of the build: of all that goes into it, this interpreter and this kind of machine."""
        text = self.requirements.encode() + f"{sys.version}|{sys.base_prefix}|{FORMAT}".encode()
        more = self.model_dump(include={"packages", "setup", "env", "path", "image"}, exclude_defaults=True)
        if self.requirements:
            more.pop("packages", None)
        if more:
            text += json.dumps([more, platform.machine()], sort_keys=True).encode()
        return hashlib.sha256(text).hexdigest()[:16]


def read(path: Path) -> Recipe:
    """The recipe in a file.

    Raises:
        TemplateError: it is none.
    """
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
        own: dict[str, object] = {"requirements": "", "shipped": path.parent == SHIPPED}
        if isinstance(name := written.get("lock"), str):
            lock = (path.parent / name).resolve()
            own |= {"lock": str(lock), "requirements": lock.read_text(encoding="utf-8")}
        recipe = Recipe.model_validate({**written, **own})
    except ValidationError as fault:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in fault.errors(include_url=False))
        raise TemplateError(f"{path} is no recipe: {wrong}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as fault:
        raise TemplateError(f"{path} cannot be read: {fault}") from None
    if recipe.name != path.stem:
        raise TemplateError(f"{path} says that its name is {recipe.name}; file and name must be the same")
    return recipe


def files(folder: Path) -> dict[str, Path]:
    """Where each recipe is, by name; `default` first."""
    found = {path.stem: path for place in (SHIPPED, folder / "recipes") for path in sorted(place.glob("*.toml"))}
    return dict(sorted(found.items(), key=lambda item: (item[0] != DEFAULT_TEMPLATE, item[0])))


def find(folder: Path, name: str) -> Recipe:
    """The recipe of this name.

    Raises:
        TemplateError: there is none; it cannot be read.
    """
    found = files(folder)
    if name not in found:
        raise TemplateError(
            f"There is no recipe {name}. There are: {', '.join(found)}. Your own go into {folder / 'recipes'}."
        )
    return read(found[name])


def check(folder: Path, name: str = DEFAULT_TEMPLATE) -> str | None:
    """What is wrong with a template, or None: it is there, of this recipe and of this interpreter.

    Raises:
        TemplateError: there is no such recipe; it cannot be read.
    """
    recipe, template = find(folder, name), Template(folder, link_of(name))
    if not template.at.is_dir() or (template.venv() is None and not recipe.only_image):
        return f"none at {folder}"
    if template.at.name != recipe.digest:
        return f"{folder} has {name} of another version"
    return None
