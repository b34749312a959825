"""Shelves in S3, beside the tenants' blobs: ``t/{tenant}/snapshots/{name}``."""

import hashlib
from collections.abc import Iterator
from datetime import UTC

from services.objects.client import Bucket
from services.snapshots.shelf import Kept


class S3Shelf:
    """One tenant's shelf. What one tenant keeps is never used for another."""

    def __init__(self, bucket: Bucket, tenant_id: str) -> None:
        self._bucket = bucket
        self._prefix = f"t/{tenant_id}/snapshots/"

    def put(self, name: str, data: bytes) -> bool:
        """One request."""
        return self._bucket.put(self._prefix + name, data, hashlib.sha256(data).digest())

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """One request."""
        return self._bucket.get(self._prefix + name, start, length)

    def has(self, name: str) -> bool:
        """One request."""
        return self._bucket.has(self._prefix + name)

    def names(self, prefix: str = "") -> Iterator[Kept]:
        """A request for each 1,000."""
        for key, size, modified in self._bucket.keys(self._prefix + prefix):
            yield Kept(key.removeprefix(self._prefix), size, modified.astimezone(UTC))

    def delete(self, name: str) -> None:
        """One request."""
        self._bucket.delete(self._prefix + name)
