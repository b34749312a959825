"""Which ways of keeping sandboxes apart work here: each is really tried, in a folder of its own."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from agents.contracts.errors import LonghaulError
from agents.contracts.sandbox import DEFAULT_TEMPLATE, SandboxLimits
from services.sandbox.backend import Backend
from services.sandbox.choose import backend_of
from services.sandbox.making import Maker
from services.sandbox.supervised.messages import Order
from services.settings import Settings

NAMES: tuple[Literal["namespace", "docker", "gvisor"], ...] = ("namespace", "docker", "gvisor")
WITHIN_S = 60.0
_TRIAL = "grep Seccomp: /proc/self/status; ls / > /dev/null && echo tools"


class Trial(NamedTuple):
    """`chosen`: it is the one that the settings name. `detail` says what to do where it does not work."""

    name: str
    chosen: bool
    works: bool
    detail: str


def tried(settings: Settings) -> Iterator[Trial]:
    """Every backend, one after the other."""
    for name in NAMES:
        one = settings.model_copy(update={"runner_backend": name, "runner_pipe_fd": -1})
        folder = Path(tempfile.mkdtemp(prefix="longhaul-doctor-"))
        try:
            works, detail = asyncio.run(_bounded(one, folder))
        except (LonghaulError, OSError, TimeoutError) as error:
            told = error.detail if isinstance(error, LonghaulError) else str(error)
            works, detail = False, told or f"a command did not run within {WITHIN_S:.0f} s"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        yield Trial(name, name == settings.runner_backend, works, detail)


async def _bounded(settings: Settings, folder: Path) -> tuple[bool, str]:
    async with asyncio.timeout(WITHIN_S):
        backend = backend_of(settings, folder)
        await asyncio.to_thread(backend.setup)
        can = await asyncio.to_thread(backend.capabilities)
        if not can.ready:
            return False, can.detail
        wrong = await _run(backend, folder)
        held = f"a command ran; limits that hold: {', '.join(can.limits) or 'none'}"
        return wrong is None, wrong or held


async def _run(backend: Backend, folder: Path) -> str | None:
    """What is wrong with a command in a sandbox, or None."""
    maker = Maker(folder, backend)
    maker.prepare()
    home = await asyncio.to_thread(maker.make, SandboxLimits(), maker.programs(DEFAULT_TEMPLATE))
    try:
        supervisor = await backend.start(home, 1)
        order = Order(
            "doctor", (_TRIAL,), backend.environment(home, {}), shell=True, merge=True, timeout_s=WITHIN_S / 2
        )
        said = (await supervisor.run(order)).stdout.decode(errors="replace")
        await supervisor.close()
    finally:
        await backend.stop(home)
        await asyncio.to_thread(maker.drop, home)
    if "Seccomp:\t2" not in said:
        return "there is no system-call filter: for gVisor register the runtime with --oci-seccomp"
    return None if said.endswith("tools\n") else f"commands do not work as they should: {said.strip().splitlines()[-1]}"
