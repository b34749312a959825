"""Blobs by digest, and the artifacts a team keeps."""

from agents.contracts.base import Count, UtcTime, Wire
from agents.contracts.ids import Sha256


class BlobRef(Wire):
    """An object in S3, addressed by its content. Its key is ``blobs/{sha256[:2]}/{sha256}`` under the tenant's; that of
    a snapshot's manifest ``snapshots/manifests/{sha256}``."""

    sha256: Sha256
    bytes: Count


class Artifact(Wire):
    """A file that a team chose to keep. `path` is relative to the workspace."""

    version: int = 1
    id: str
    task_id: str
    step_id: str | None = None
    path: str
    sha256: Sha256
    bytes: Count
    media_type: str = "application/octet-stream"
    created_at: UtcTime


class UploadedFile(Wire):
    """A file that a user uploaded as a task's input."""

    id: str
    name: str
    sha256: Sha256
    bytes: Count
    created_at: UtcTime
