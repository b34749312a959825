"""Templates: what a sandbox's programs are, read-only and first on its PATH. Here built ones are found and read;
`services.sandbox.templates` makes them.

DIR/current         the build of the template `default` in use: a link
DIR/named/NAME      the same of every other
DIR/DIGEST/         a build; once it is there it never changes
    venv/           a virtual environment, at `VENV` inside
    made/           what the recipe's commands made, at `MADE` inside
    build.json      what commands find in their environment; which image has the programs, if one has
"""

import fcntl
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from agents.contracts.base import Wire
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.sandbox import DEFAULT_TEMPLATE

VENV = "/opt/longhaul/venv"
MADE = "/opt/longhaul/template"
FACTS = "build.json"
BUILDING = "building-"
"""How the name of a build begins that is not finished yet."""
CACHE = "matplotlib"


class Laid(NamedTuple):
    """Files that sandboxes see and must not change: a folder of the host, where it is inside, and since when nothing in
    it has changed."""

    folder: Path
    inside: str
    at_ns: int


class Facts(Wire):
    """`build.json`: what a build brings beside its files. `image`: an engine's image has the programs."""

    env: dict[str, str] = {}
    path: tuple[str, ...] = ()
    image: str | None = None

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with what the template adds; its folders are first on PATH."""
        path = ":".join([*self.path, self.env.get("PATH", base.get("PATH", ""))])
        return {**base, **self.env, "PATH": path}


def link_of(name: str) -> str:
    """The link to the build of a template that is in use, from the templates' folder."""
    return "current" if name == DEFAULT_TEMPLATE else f"named/{name}"


@dataclass(frozen=True, slots=True)
class Template:
    """A build, as the templates' folder and what of it leads there: by default the one of `default` in use."""

    folder: Path
    link: str = "current"

    @property
    def at(self) -> Path:
        """Where it lies, whatever becomes of the link."""
        return (self.folder / self.link).resolve()

    @property
    def finished(self) -> bool:
        """Whether it is read-only."""
        return not self.at.name.startswith(BUILDING)

    def venv(self) -> Path | None:
        """Its virtual environment."""
        return _folder(self.at / "venv")

    def made(self) -> Path | None:
        """What its commands made."""
        return _folder(self.at / "made")

    def facts(self) -> Facts:
        """What else it brings."""
        try:
            return Facts.model_validate_json((self.at / FACTS).read_bytes())
        except FileNotFoundError:
            return Facts()

    def laid(self) -> list[Laid]:
        """Its folders. Nothing in them has changed since the build was put in its place."""
        since = self.at.stat().st_ctime_ns
        folders = ((self.venv(), VENV), (self.made(), MADE))
        return [Laid(folder, inside, since) for folder, inside in folders if folder is not None]

    def missing(self) -> str | None:
        """What to do where there is no template."""
        if self.venv() is not None:
            return None
        return f"no template at {self.folder}: run `make setup`, or `longhaul template build`"

    @staticmethod
    def base_prefix(venv: Path) -> Path:
        """Where the interpreter under a virtual environment lives."""
        return (venv / "bin" / "python").resolve().parents[1]

    def seed(self, private: Path, uid: int | None) -> None:
        """Make a new sandbox's home, with the caches that are dear to make (matplotlib's list of fonts)."""
        home = private / "home"
        target = home / CACHE
        target.mkdir(parents=True, exist_ok=True)
        source = self.at / CACHE
        for file in source.iterdir() if source.is_dir() else ():
            if file.is_file():
                shutil.copyfile(file, target / file.name)
        if uid is not None:
            for path in (home, target, *target.iterdir()):
                os.chown(path, uid, uid)


class Templates:
    """The built ones, for a runner. What it has given away stays until the process ends: each build is locked, and
    `prune` leaves such a one alone. `images`: whether there is an engine, on which an image can be a template."""

    def __init__(self, folder: Path, *, images: bool = False) -> None:
        self._folder = folder
        self._images = images
        self._held: dict[str, int] = {}
        self._facts: dict[str, Facts] = {}

    def names(self) -> tuple[str, ...]:
        """Those that a sandbox can have here."""
        links = self._folder / "named"
        named = sorted(os.listdir(links)) if links.is_dir() else []
        return tuple(name for name in (DEFAULT_TEMPLATE, *named) if self._usable(Template(self._folder, link_of(name))))

    def pick(self, name: str) -> str:
        """The build that a new sandbox of this template gets.

        Raises:
            LonghaulError: ``TEMPLATE_NOT_FOUND``, with those that there are.
        """
        for _ in range(3):  # one that is just being replaced and pruned is there anew
            found = Template(self._folder, link_of(name))
            if self._usable(found) and self._hold(found.at.name):
                return found.at.name
        raise not_found(name, self.names())

    def of(self, build: str) -> Template:
        """The template of a sandbox. One that was made before builds were noted has the present default.

        Raises:
            LonghaulError: ``TEMPLATE_NOT_FOUND``: its build was taken away.
        """
        if not build or build.startswith(BUILDING):
            return Template(self._folder, build or link_of(DEFAULT_TEMPLATE))
        if not self._hold(build):
            raise LonghaulError(
                ErrorCode.TEMPLATE_NOT_FOUND, f"this sandbox's template ({build}) is not there any more"
            )
        return Template(self._folder, build)

    def environment(self, build: str, base: Mapping[str, str]) -> dict[str, str]:
        """What commands find in the environment of a sandbox; raises as `of`."""
        if (facts := self._facts.get(build)) is None:
            facts = self.of(build).facts()
            if build:
                self._facts[build] = facts
        return facts.environment(base)

    def _usable(self, template: Template) -> bool:
        if template.venv() is not None:
            return True
        return self._images and template.at.is_dir() and template.facts().image is not None

    def _hold(self, build: str) -> bool:
        """Lock a build for as long as this process lives; False where it is not there."""
        if build in self._held:
            return True
        try:
            fd = os.open(self._folder / build, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        fcntl.flock(fd, fcntl.LOCK_SH)
        if not (self._folder / build).is_dir():  # it was pruned meanwhile
            os.close(fd)
            return False
        self._held[build] = fd
        return True


def not_found(name: str, names: tuple[str, ...]) -> LonghaulError:
    """There is no such template."""
    known = ", ".join(names) or "none is built"
    return LonghaulError(
        ErrorCode.TEMPLATE_NOT_FOUND,
        f"there is no template {name} here; there are: {known} (`longhaul template list` shows all recipes)",
    )


def _folder(path: Path) -> Path | None:
    return path if path.is_dir() else None
