"""A workspace that cannot be kept stops nobody; a store that is away is waited for."""

from typing import Any, cast

import pytest

from agents.contracts.artifact import BlobRef
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.ids import Place, Role
from agents.contracts.run import AgentRef
from agents.contracts.sandbox import Owner, Snapshot
from workflows.activities.doing import here
from workflows.activities.review import ReviewActivities
from workflows.names import checkpoint_key, task_of, workspace_id

EXECUTOR = AgentRef(tenant_id="t", place=Place(task_id="task_1", role=Role.EXECUTOR, step="fix"), round=2)
KEPT = Snapshot(manifest=BlobRef(sha256="0" * 64, bytes=1), files=1, folders=0, links=0, bytes=1, added_bytes=1)


class Host:
    """A runner that keeps, or says why not."""

    def __init__(self, fault: ErrorCode | None) -> None:
        self._fault = fault
        self.asked: list[tuple[str, str]] = []

    async def snapshot(self, sandbox_id: str, key: str, owner: Owner, *, state: bool) -> Snapshot:
        assert state, "the state of the sandbox belongs to a checkpoint"
        self.asked.append((sandbox_id, key))
        if self._fault is not None:
            raise LonghaulError(self._fault, "why")
        return KEPT


class Rows:
    """Notes what is kept."""

    def __init__(self) -> None:
        self.kept: list[tuple[AgentRef, Snapshot]] = []

    async def keep_checkpoint(self, executor: AgentRef, snapshot: Snapshot) -> None:
        self.kept.append((executor, snapshot))


async def keep(fault: ErrorCode | None) -> tuple[Host, Rows]:
    host, rows, nobody = Host(fault), Rows(), cast("Any", None)
    activities = ReviewActivities(nobody, nobody, cast("Any", rows), cast("Any", host), here)
    await activities._checkpoint(EXECUTOR)
    return host, rows


async def test_the_workspace_is_kept_under_the_key_of_its_round() -> None:
    host, rows = await keep(None)
    assert host.asked == [(workspace_id(task_of(EXECUTOR)), checkpoint_key(EXECUTOR))]
    assert rows.kept == [(EXECUTOR, KEPT)]
    assert checkpoint_key(EXECUTOR) != checkpoint_key(EXECUTOR.model_copy(update={"round": 3}))


async def test_one_that_cannot_be_kept_is_passed_over() -> None:
    _, rows = await keep(ErrorCode.SNAPSHOT_FAILED)
    assert rows.kept == []


@pytest.mark.parametrize(
    "fault", [ErrorCode.OBJECTS_UNAVAILABLE, ErrorCode.SANDBOX_UNAVAILABLE, ErrorCode.SANDBOX_LOST]
)
async def test_what_may_pass_or_ends_the_task_is_told(fault: ErrorCode) -> None:
    with pytest.raises(LonghaulError) as caught:
        await keep(fault)
    assert caught.value.code is fault
