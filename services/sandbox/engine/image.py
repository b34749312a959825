"""The image of sandboxes on an engine: one that the operator names, or one of links and empty folders over this host's
own programs. Nothing is ever pulled: an image that is not there is said, with the command that brings it."""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker.errors import ImageNotFound

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox import inside
from services.sandbox.engine.client import EngineClient
from services.sandbox.template import MADE, VENV, Laid, Template, Templates

REPOSITORY = "longhaul/host"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FOLDERS = ("/etc", "/tmp", "/workspace", "/proc", "/dev", "/sys", "/.longhaul", VENV, MADE)


@dataclass(frozen=True, slots=True)
class Image:
    """`binds` are (host, inside) pairs, read-only, without which it is empty; `env` is what its commands get.
    `ours`: its /etc is, too."""

    name: str
    env: Mapping[str, str]
    binds: tuple[tuple[str, str], ...] = field(default=())
    ours: bool = False


class Images:
    """The image of a runner's sandboxes. `name` is the operator's, or empty; `etc` is a folder of ours. A template may
    have an image of its own."""

    def __init__(self, client: EngineClient, name: str, templates: Templates, etc: Path) -> None:
        self._client = client
        self._name = name
        self.templates = templates
        self._etc = etc
        self._mark = etc.with_name("laid")  # its time says when that was

    def setup(self) -> None:
        """Lay down /etc of the sandboxes that have this host's programs."""
        inside.write_etc(self._etc, 0)
        for name in ("hostname", "resolv.conf"):  # the engine mounts its own over them
            inside.replace(self._etc / name, b"", 0o644)
        self._mark.unlink(missing_ok=True)
        self._mark.touch()

    def laid(self, build: str) -> list[Laid]:
        """The files of ours that such a sandbox has: its template's, and /etc."""
        template = self.templates.of(build)
        if template.facts().image or self._name:
            return []
        return [*template.laid(), Laid(self._etc, "/etc", self._mark.stat().st_ctime_ns)]

    def get(self, build: str) -> Image:
        """The image for a build of a template, known to be there.

        Raises:
            LonghaulError: ``SANDBOX_UNAVAILABLE``, with what to do; ``TEMPLATE_NOT_FOUND``; else as `EngineClient.ask`.
        """
        template = self.templates.of(build)
        name = template.facts().image or self._name
        return self._named(name) if name else self._own(template)

    def _named(self, name: str) -> Image:
        try:
            told = self._client.ask_now(lambda api: api.inspect_image(name))
        except LonghaulError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            fix = f"docker pull {name} (nothing is pulled by itself)"
            detail = f"the engine has no image {name}: {fix}"
            raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, detail) from error
        lines = told["Config"].get("Env") or []
        brought = dict(line.split("=", 1) for line in lines if "=" in line)
        return Image(name, {"PATH": _PATH, **brought, **inside.AT_HOME})

    def _own(self, template: Template) -> Image:
        venv, made = template.venv(), template.made()
        if venv is None:
            raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, template.missing() or "there is no template")
        name = self._client.ask_now(host_image)
        base = Template.base_prefix(venv)
        same = [*inside.programs(), *inside.configuration()]
        if not base.is_relative_to("/usr"):
            same.append(str(base))
        binds = ((str(self._etc), "/etc"), *((path, path) for path in same), (str(venv), VENV))
        if made is not None:
            binds = (*binds, (str(made), MADE))
        return Image(name, inside.ENVIRONMENT, binds, ours=True)


def host_image(api: Any) -> str:
    """The name of the image over this host's programs; it is made where the engine has none."""
    tar = _tar()
    tag = hashlib.sha256(tar).hexdigest()[:12]
    try:
        api.inspect_image(f"{REPOSITORY}:{tag}")
    except ImageNotFound:
        api.import_image_from_data(tar, repository=REPOSITORY, tag=tag)
    return f"{REPOSITORY}:{tag}"


def _tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in (*_FOLDERS, *inside.programs()):
            folder = tarfile.TarInfo(name.lstrip("/"))
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "/tmp" else 0o755
            tar.addfile(folder)
        for path, target in inside.links():
            link = tarfile.TarInfo(path.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
    return made.getvalue()
