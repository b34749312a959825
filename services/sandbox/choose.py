"""The backend that the settings name, built; and whether it is enough for who shares a deployment."""

import os
import secrets
from dataclasses import replace
from pathlib import Path

from agents.contracts.sandbox import Trait
from services.sandbox.backend import Backend
from services.sandbox.cgroups import detect
from services.sandbox.namespace import NamespaceBackend, find_bwrap
from services.sandbox.supervisor.build import program
from services.sandbox.template import Template, Templates
from services.settings import Settings


def too_weak(settings: Settings) -> str | None:
    """Why the runner must not start with this backend, or None."""
    name = settings.runner_backend
    if not settings.multi_tenant or name in ("gvisor", settings.multi_tenant_allows):
        return None
    return (
        f"LONGHAUL_MULTI_TENANT is set, and sandboxes of the backend {name} share this host's kernel with it and with "
        "each other. Set LONGHAUL_RUNNER_BACKEND=gvisor (docs/how-to/backends.md), or accept it with "
        f"LONGHAUL_MULTI_TENANT_ALLOWS={name}"
    )


def backend_of(settings: Settings, data_dir: Path) -> Backend:
    """The backend, on the launcher's leash where there is a launcher.

    Raises:
        FileNotFoundError: bubblewrap is not installed.
    """
    tools = settings.runner_template_dir.resolve()
    if settings.runner_backend != "namespace":
        return _engine(settings, data_dir, tools)
    return NamespaceBackend(data_dir, Template(tools), detect(), find_bwrap(), program(tools), settings.runner_pipe_fd)


def _engine(settings: Settings, data_dir: Path, tools: Path) -> Backend:
    # not with the others: the runner of the default backend does not need to load the client of an engine
    from services.sandbox.engine import leash
    from services.sandbox.engine.backend import KINDS, EngineBackend
    from services.sandbox.engine.client import EngineClient
    from services.sandbox.engine.containers import Containers
    from services.sandbox.engine.image import Images

    kind, templates = KINDS[settings.runner_backend], Templates(tools, images=True)
    kind = replace(kind, runtime=settings.runner_runtime or kind.runtime)
    url, owner = settings.runner_engine_url, _owner(data_dir)
    client = EngineClient(url)
    outside = os.stat("/proc/self/ns/pid").st_ino
    shared, built = data_dir / "shared", program(tools)
    containers = Containers(
        client,
        shared / "supervisor" / built.name,
        outside,
        owner,
        kind.runtime,
        own_kernel=Trait.OWN_KERNEL in kind.traits,
    )
    images = Images(client, settings.runner_image, templates, shared / "etc")
    if settings.runner_pipe_fd >= 0:
        leash.put_on(settings.runner_pipe_fd, data_dir / "engine-leash.lock", url, owner)
    return EngineBackend(kind, client, containers, images, built)


def _owner(data_dir: Path) -> str:
    """What marks this runner's containers: of two runners at one engine neither touches the other's."""
    file = data_dir / "engine-owner"
    if not file.exists():
        file.write_text(secrets.token_hex(6))
    return file.read_text()
