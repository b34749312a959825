"""What runner and client say to each other beyond the contracts."""

from agents.contracts.base import Count, Wire
from agents.contracts.sandbox import FileEntry, Owner, SandboxInfo

OWNER_HEADER = "X-Longhaul-Owner"
"""The `Owner` as JSON, where the body is a stream of bytes."""


class KillRequest(Wire):
    """End one command."""

    exec_id: str
    owner: Owner


class SandboxList(Wire):
    """Every sandbox of a runner."""

    sandboxes: list[SandboxInfo]


class FileList(Wire):
    """The first files in path order, and how many there are."""

    files: list[FileEntry]
    total: Count
