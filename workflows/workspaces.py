"""The sandboxes of a task as they are now. One that is lost is made again, from what was kept of it: which one stands
in its place is decided in the rows first, so whoever is killed in between, the next one goes on with the same."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from agents.contracts.errors import ErrorCode, ErrorInfo, Fenced, LonghaulError
from agents.contracts.run import AgentRef, TaskRef
from agents.contracts.sandbox import Owner, SandboxInfo, SandboxSpec
from workflows.clock import Clock
from workflows.names import checkpoint_key, harness, snapshot_key, task_of, workspace_id
from workflows.ports import Kept, Objects, Runner
from workflows.records import Held
from workflows.task_ports import Box, SandboxStore, Taken, TaskInputs, TaskStore

T = TypeVar("T")

GONE = frozenset({ErrorCode.SANDBOX_NOT_FOUND, ErrorCode.SANDBOX_LOST})
"""The sandbox's files are not there any more."""

DAMAGED = frozenset({ErrorCode.SNAPSHOT_FAILED, ErrorCode.SNAPSHOT_NOT_FOUND})
"""The snapshot cannot be restored from, now or ever."""

UNFINISHED = ErrorInfo(code=ErrorCode.SANDBOX_LOST, detail="the sandbox was lost and is being made again")

_LOG = logging.getLogger(__name__)


class Workspaces:
    """Implements `workflows.ports.Safekeeping`, and finds sandboxes for a task's own activities."""

    def __init__(self, store: SandboxStore, tasks: TaskStore, runner: Runner, objects: Objects, clock: Clock) -> None:
        self._store = store
        self._tasks = tasks
        self._runner = runner
        self._objects = objects
        self._clock = clock

    # --- finding, making again ----------------------------------------------------------------------------------------
    async def current(self, task: TaskRef, sandbox_id: str) -> Box:
        """The one that stands in this one's place now. ``SANDBOX_NOT_FOUND`` where no row names it."""
        return await self._store.current(task, sandbox_id)

    async def on(self, task: TaskRef, sandbox_id: str, act: Callable[[Box], Awaitable[T]]) -> T:
        """Do something with the one that stands in this one's place now; where it is lost, with the next.

        Raises:
            LonghaulError: as `act` and `restore`; ``SANDBOX_UNAVAILABLE`` where that one is lost, too.
        """
        box = await self._store.current(task, sandbox_id)
        if not box.ready:
            box = await self._again(task, box.id, UNFINISHED, None)
        try:
            return await act(box)
        except LonghaulError as fault:
            if fault.code not in GONE:
                raise
            box = await self._again(task, box.id, fault.info, None)
        try:
            return await act(box)
        except LonghaulError as fault:
            if fault.code not in GONE:
                raise
            raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, f"lost again: {fault.detail}") from fault

    async def restore(self, held: Held, lost: str, why: ErrorInfo) -> None:
        """Have an agent's sandbox made again.

        Raises:
            LonghaulError: as `SandboxStore.replace` and `Runner.create`.
        """
        await self._again(task_of(held.ref), lost, why, held)

    async def _again(self, task: TaskRef, lost: str, why: ErrorInfo, held: Held | None) -> Box:
        box = await self._store.replace(task, lost, why, held)
        while not box.ready:
            try:
                made = await self.make(task, box)
            except LonghaulError as fault:
                if fault.code not in DAMAGED:
                    raise
                _LOG.warning("sandbox %s cannot be restored from its snapshot: %s", box.id, fault.detail)
                box = await self._store.replace(task, box.id, fault.info, held)
            else:
                box = await self._store.restored(task, box, made, held)
                if box.id != lost:
                    await self._end(lost)
        return box

    async def _end(self, lost: str) -> None:
        """What is left of a lost one may still run. Where its host cannot be told now, the reaper does it."""
        with suppress(LonghaulError):
            await self._runner.destroy(lost)

    async def make(self, task: TaskRef, box: Box) -> SandboxInfo:
        """Make a sandbox as its row says: from a snapshot; else with the uploads, or as a copy of the workspace now.

        Raises:
            LonghaulError: as `Runner.create`; ``SANDBOX_UNAVAILABLE`` where it was lost meanwhile: it can be made anew.
        """
        inputs = await self._tasks.inputs(task)
        spec = SandboxSpec(
            id=box.id,
            tenant_id=task.tenant_id,
            task_id=task.task_id,
            fence=box.fence,
            limits=inputs.sandbox,
            network=inputs.network,
            template=inputs.template,
            snapshot=box.source,
        )
        if box.purpose == "clean_copy" and box.source is None:
            return await self.on(
                task,
                workspace_id(task),
                lambda workspace: self._runner.create(spec.model_copy(update={"copy_of": workspace.id})),
            )
        made = await self._runner.create(spec)
        if box.source is None:
            await self._fill(task, made, inputs)
        return made

    async def _fill(self, task: TaskRef, made: SandboxInfo, inputs: TaskInputs) -> None:
        """Put the repository and the files in, each once."""
        owner = harness(task, made.fence)
        try:
            if inputs.repo is not None:
                archive = self._objects.get_stream(task.tenant_id, inputs.repo)
                await self._runner.put_archive(made.id, f"{task.task_id}/{task.epoch}/repo", owner, archive)
            for n, file in enumerate(inputs.files):
                data = self._objects.get_stream(task.tenant_id, file.blob)
                await self._runner.put_file(made.id, f"{task.task_id}/{task.epoch}/file/{n}", owner, file.path, data)
        except LonghaulError as fault:
            if fault.code not in GONE:
                raise
            raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, f"lost while it was filled: {fault.detail}") from fault

    # --- keeping ------------------------------------------------------------------------------------------------------
    async def keep(self, held: Held, sandbox_id: str, owner: Owner, turn: int, at: datetime) -> Kept:
        """Keep the files as they are between two turns, unless a command runs in the sandbox; `turn` ended before `at`.
        What hinders it is no reason to stop the work.

        Raises:
            LonghaulError: the sandbox is lost; `Fenced`.
        """
        try:
            taken = await self._take(sandbox_id, snapshot_key(held.ref, turn), owner, wait_s=0.0)
            await self._store.keep(held, turn, replace(taken, taken_at=at))
        except Fenced:
            raise
        except LonghaulError as fault:
            if fault.code in GONE:
                raise
            if fault.code is ErrorCode.SANDBOX_UNAVAILABLE:
                return "busy"
            _LOG.warning("no snapshot of sandbox %s was kept: %s", sandbox_id, fault.detail)
            return "failed"
        return "kept"

    async def checkpoint(self, executor: AgentRef) -> Taken:
        """Keep the workspace as an executor left it, once no command runs. Raises as `Runner.snapshot`."""
        task, key = task_of(executor), checkpoint_key(executor)
        return await self.on(
            task,
            workspace_id(task),
            lambda box: self._take(box.id, key, harness(task, box.fence), state=True),
        )

    async def keep_copy(self, copy: str, executor: AgentRef) -> None:
        """Note that a clean copy, where it is lost, is made again from the checkpoint of this round."""
        await self._store.keep_copy(task_of(executor), copy, executor)

    async def _take(
        self, sandbox_id: str, key: str, owner: Owner, *, state: bool = False, wait_s: float = 60.0
    ) -> Taken:
        at, begun = self._clock.now(), self._clock.monotonic()
        snapshot = await self._runner.snapshot(sandbox_id, key, owner, state=state, wait_s=wait_s)
        return Taken(sandbox_id, snapshot, at, int((self._clock.monotonic() - begun) * 1_000))
