"""Checkpoints: the workspace of a task as it was when a step was handed in."""

from typing import Literal

from agents.contracts.artifact import BlobRef
from agents.contracts.base import Count, UtcTime, Wire
from agents.contracts.sandbox import StateReport


class Checkpoint(Wire):
    """A workspace that was kept after a round of a step. `bytes` is what its files hold, `added_bytes` what had to be
    stored for it beyond the one before. `state` is that of its sandbox then; old ones have none."""

    version: int = 1
    id: str
    task_id: str
    step_id: str
    revision: int
    round: int
    sandbox_id: str
    manifest: BlobRef
    files: Count
    folders: Count
    links: Count
    bytes: Count
    added_bytes: Count
    state: StateReport | None = None
    created_at: UtcTime


class CheckpointEntry(Wire):
    """A file, folder or link; `path` is relative to the workspace. A name that is no text is shown with marks in place
    of what is not, and cannot be asked for. `target` is where a link leads."""

    path: str
    kind: Literal["file", "folder", "link"]
    mode: int
    bytes: Count = 0
    modified_at: UtcTime
    target: str | None = None


class CheckpointFiles(Wire):
    """A page of what a checkpoint holds, in the order of paths. `next_after` is null on the last."""

    data: list[CheckpointEntry]
    next_after: str | None = None


class CheckpointChange(Wire):
    """A path that is not the same in two checkpoints. A time alone is no change."""

    path: str
    change: Literal["added", "removed", "changed"]
    before: CheckpointEntry | None = None
    after: CheckpointEntry | None = None


class CheckpointDiff(Wire):
    """What changed from the checkpoint `before` (null: from nothing) to `after`. `total` counts what `data` may cut."""

    before: str | None
    after: str
    data: list[CheckpointChange]
    total: Count
