"""Whether sandboxes work here, by running a command in a throw-away one."""

import asyncio
import secrets
import time

from agents.contracts.errors import LonghaulError
from agents.contracts.sandbox import Capabilities, ExecRequest, Owner, SandboxSpec
from services.sandbox.backend import Backend
from services.sandbox.execs import Execs
from services.sandbox.sandboxes import Sandboxes

GOOD_FOR_S, BAD_FOR_S, TRIAL_S = 60.0, 5.0, 20.0
_OWNER = Owner(agent_id="probe", agent_fence=1, sandbox_fence=1)


class Probe:
    """Remembers the last trial for a minute where it was good, for seconds where it was not."""

    def __init__(self, backend: Backend, sandboxes: Sandboxes, execs: Execs) -> None:
        self._backend = backend
        self._sandboxes = sandboxes
        self._execs = execs
        self._lock = asyncio.Lock()
        self._last: Capabilities | None = None
        self._until = 0.0

    async def capabilities(self) -> Capabilities:
        """What the host can do; `ready` means that a command ran. Templates are those of this moment."""
        async with self._lock:
            if self._last is None or time.monotonic() >= self._until:
                self._last = await self._trial()
                self._until = time.monotonic() + (GOOD_FOR_S if self._last.ready else BAD_FOR_S)
            last = self._last
        return last.model_copy(update={"templates": await asyncio.to_thread(self._backend.templates)})

    async def _trial(self) -> Capabilities:
        told = await asyncio.to_thread(self._backend.capabilities)
        if not told.ready:
            return told
        sandbox_id = f"probe-{secrets.token_hex(6)}"
        try:
            await self._sandboxes.create(SandboxSpec(id=sandbox_id, tenant_id="probe", task_id="probe"))
            fault = await self._run(sandbox_id)
        except (LonghaulError, OSError) as error:
            fault = error.detail if isinstance(error, LonghaulError) else str(error)
        finally:
            await self._sandboxes.destroy(sandbox_id)
        return told if fault is None else told.model_copy(update={"ready": False, "detail": fault})

    async def _run(self, sandbox_id: str) -> str | None:
        """None where a command ran; else why not."""
        home = self._sandboxes.find(sandbox_id)
        request = ExecRequest(exec_id="probe", key="probe", owner=_OWNER, command="echo ready", timeout_s=TRIAL_S / 2)
        run = await self._execs.start(home, request, "probe")
        await self._execs.wait(run, TRIAL_S)
        status = run.status(request, "probe")
        return None if status.output == "ready\n" else f"a trial command did not run: {status.output!r}"
