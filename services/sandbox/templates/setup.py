"""A recipe's commands, run once, in a sandbox as any other: no network, no root, nothing of this host but its programs.
What they leave in `MADE` is the template's."""

import asyncio
import os
import stat
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from agents.contracts.errors import LonghaulError
from agents.contracts.sandbox import SandboxLimits
from services.sandbox import tree
from services.sandbox.cgroups import detect
from services.sandbox.home import FOLDERS, OWNED, Home
from services.sandbox.namespace import NamespaceBackend, find_bwrap
from services.sandbox.records import Meta
from services.sandbox.supervised.messages import Order
from services.sandbox.supervisor.build import BuildError
from services.sandbox.supervisor.build import build as build_supervisor
from services.sandbox.template import BUILDING, MADE, Template
from services.sandbox.templates.recipe import Recipe, TemplateError

COMMAND_S = 1_800.0
UID = 230_000
"""Root's sandboxes have a user each, up to this one: it is the builder's."""
_SHOWN_CHARS = 2_000


def run(building: Path, recipe: Recipe) -> None:
    """Run the recipe's commands on the folder of a build that has its virtual environment.

    Raises:
        TemplateError: one has failed, or no sandbox can be had; says which, and what was said.
    """
    made = building / "made"
    made.mkdir(mode=0o755)
    uid = UID if os.geteuid() == 0 else None
    if uid is not None:
        os.chown(made, uid, uid)
    data = Path(tempfile.mkdtemp(prefix=BUILDING, dir=building.parent))
    leash, hand = os.pipe()  # where this process is killed the sandbox ends
    try:
        data.chmod(0o711)
        program = build_supervisor(building.parent)
        template = Template(building.parent, building.name)
        backend = NamespaceBackend(data, template, detect(), find_bwrap(), program, leash)
        backend.setup()
        asyncio.run(_run(backend, _home(data, building.name, uid), recipe))
    except (LonghaulError, BuildError, FileNotFoundError) as fault:
        raise TemplateError(f"The commands of the template {recipe.name} need a sandbox: {fault}") from None
    finally:
        os.close(hand)
        os.close(leash)
        tree.delete(data)
    _freeze(made)


def _home(data: Path, build: str, uid: int | None) -> Home:
    meta = Meta(
        id="template",
        tenant_id="template",
        task_id="template",
        limits=SandboxLimits(),
        uid=uid,
        backend=NamespaceBackend.name,
        build=build,
        created_at=datetime.now(UTC),
    )
    home = Home(data / "sandbox", meta)
    home.root.mkdir(mode=0o711)
    for name in FOLDERS:
        (home.root / name).mkdir(mode=0o700)
    for name in OWNED if uid is not None else ():
        os.chown(home.root / name, uid or 0, uid or 0)
    return home


async def _run(backend: NamespaceBackend, home: Home, recipe: Recipe) -> None:
    backend.make(home)
    supervisor = await backend.start(home, 1)
    try:
        env = backend.environment(home, {})
        for number, command in enumerate(recipe.setup, start=1):
            order = Order(f"setup-{number}", (command,), env, MADE, shell=True, merge=True, timeout_s=COMMAND_S)
            done = await supervisor.run(order)
            if done.entry.exit_code != 0:
                said = done.stdout.decode("utf-8", "replace")[-_SHOWN_CHARS:].rstrip()
                raise TemplateError(
                    f"Command {number} of the template {recipe.name} ended with {done.entry.exit_code} "
                    f"({done.entry.reason.name.lower()}): {command}\n{said}"
                )
    finally:
        await supervisor.close()
        await backend.stop(home)
        backend.remove(home)


def _freeze(made: Path) -> None:
    """It is ours from now on, readable for all. Nothing runs in it any more; what is no file, folder or link goes."""
    for folder, folders, names in os.walk(made):  # a folder is opened up before it is entered
        for name in (".", *folders, *names):
            path = Path(folder, name)
            info = path.lstat()
            if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode) or stat.S_ISLNK(info.st_mode)):
                path.unlink()
                continue
            os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
            if not stat.S_ISLNK(info.st_mode):
                path.chmod(0o755 if stat.S_ISDIR(info.st_mode) or info.st_mode & 0o100 else 0o644)
