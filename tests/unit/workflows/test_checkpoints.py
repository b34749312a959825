"""A workspace that cannot be kept stops nobody; a store that is away is waited for."""

from typing import Any, cast

import pytest

from agents.contracts.artifact import BlobRef
from agents.contracts.errors import ErrorCode, ErrorInfo, LonghaulError
from agents.contracts.ids import Place, Role
from agents.contracts.run import AgentRef, TaskRef
from agents.contracts.sandbox import Owner, Snapshot
from tests.support.memory import NOW, StillClock
from workflows.activities.doing import here
from workflows.activities.review import ReviewActivities, Stores
from workflows.names import checkpoint_key, task_of, workspace_id
from workflows.records import Held
from workflows.task_ports import Box, Taken
from workflows.workspaces import Workspaces

EXECUTOR = AgentRef(tenant_id="t", place=Place(task_id="task_1", role=Role.EXECUTOR, step="fix"), round=2)
KEPT = Snapshot(manifest=BlobRef(sha256="0" * 64, bytes=1), files=1, folders=0, links=0, bytes=1, added_bytes=1)


class Host:
    """A runner that keeps, or says why not."""

    def __init__(self, fault: ErrorCode | None) -> None:
        self._fault = fault
        self.asked: list[tuple[str, str]] = []

    async def snapshot(self, sandbox_id: str, key: str, owner: Owner, *, state: bool, wait_s: float) -> Snapshot:
        assert state, "the state of the sandbox belongs to a checkpoint"
        self.asked.append((sandbox_id, key))
        if self._fault is not None:
            raise LonghaulError(self._fault, "why")
        return KEPT


class Rows:
    """Notes what is kept; the workspace is there, or has just been made again."""

    def __init__(self) -> None:
        self.kept: list[tuple[AgentRef, Taken]] = []
        self.lost: list[str] = []

    async def keep_checkpoint(self, executor: AgentRef, taken: Taken) -> None:
        self.kept.append((executor, taken))

    async def current(self, task: TaskRef, sandbox_id: str) -> Box:
        return Box(sandbox_id, 1, sandbox_id, "workspace", ready=True)

    async def replace(self, task: TaskRef, lost: str, why: ErrorInfo, held: Held | None) -> Box:
        self.lost.append(lost)
        return Box("sbx_2", 2, lost, "workspace", ready=True)


async def keep(fault: ErrorCode | None) -> tuple[Host, Rows]:
    host, rows, nobody = Host(fault), Rows(), cast("Any", None)
    workspaces = Workspaces(cast("Any", rows), nobody, cast("Any", host), nobody, StillClock())
    stores = Stores(nobody, nobody, cast("Any", rows))
    activities = ReviewActivities(stores, workspaces, cast("Any", host), here)
    await activities._checkpoint(EXECUTOR)
    return host, rows


async def test_the_workspace_is_kept_under_the_key_of_its_round() -> None:
    host, rows = await keep(None)
    assert host.asked == [(workspace_id(task_of(EXECUTOR)), checkpoint_key(EXECUTOR))]
    [(executor, taken)] = rows.kept
    assert (executor, taken.snapshot) == (EXECUTOR, KEPT)
    assert (taken.sandbox_id, taken.taken_at) == (workspace_id(task_of(EXECUTOR)), NOW)
    assert checkpoint_key(EXECUTOR) != checkpoint_key(EXECUTOR.model_copy(update={"round": 3}))


async def test_one_that_cannot_be_kept_is_passed_over() -> None:
    _, rows = await keep(ErrorCode.SNAPSHOT_FAILED)
    assert rows.kept == []


@pytest.mark.parametrize("fault", [ErrorCode.OBJECTS_UNAVAILABLE, ErrorCode.SANDBOX_UNAVAILABLE])
async def test_what_may_pass_is_told(fault: ErrorCode) -> None:
    with pytest.raises(LonghaulError) as caught:
        await keep(fault)
    assert caught.value.code is fault


async def test_a_lost_workspace_is_made_again_and_a_second_loss_is_tried_later() -> None:
    host, rows, nobody = Host(ErrorCode.SANDBOX_LOST), Rows(), cast("Any", None)
    workspaces = Workspaces(cast("Any", rows), nobody, cast("Any", host), nobody, StillClock())
    with pytest.raises(LonghaulError) as caught:
        await workspaces.checkpoint(EXECUTOR)
    assert caught.value.code is ErrorCode.SANDBOX_UNAVAILABLE
    assert rows.lost == [workspace_id(task_of(EXECUTOR))]
    assert [sandbox for sandbox, _ in host.asked] == [workspace_id(task_of(EXECUTOR)), "sbx_2"]
