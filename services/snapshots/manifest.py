"""What a snapshot is made of. It is stored last: a snapshot exists once its manifest does."""

from typing import Annotated

from pydantic import Field, ValidationError

from agents.contracts.base import Count, Wire, read_stored
from services.snapshots.faults import broken

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""BLAKE3, in hex."""


class Manifest(Wire):
    """A whole folder: the tree of its top, and the segments of the index that together name every object it needs.

    It holds no time and no name, so a folder that has not changed has the manifest it had. `salt` means nothing.
    """

    version: int = 1
    salt: int = 0
    root: Digest
    mode: int
    segments: tuple[Digest, ...]
    files: Count
    folders: Count
    links: Count
    bytes: Count


def pack_manifest(manifest: Manifest) -> bytes:
    """Its stored form."""
    return manifest.model_dump_json().encode()


def unpack_manifest(data: bytes) -> Manifest:
    """A stored manifest.

    Raises:
        LonghaulError: ``SNAPSHOT_FAILED``.
    """
    try:
        return read_stored(Manifest, data)
    except ValidationError as error:
        raise broken("its manifest cannot be read") from error
