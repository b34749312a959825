"""A process's way to the tenants' shelves."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from services.settings import Settings
from services.snapshots.shelf import Shelf

if TYPE_CHECKING:
    from services.objects.client import Bucket


def shelves(settings: Settings, *, connections: int = 8) -> Callable[[str], Shelf]:
    """Gives a tenant's shelf in the object store. Its library, half a second and 30 MB, is loaded for the first one."""

    @functools.cache
    def bucket() -> "Bucket":
        from services.objects.client import Bucket

        return Bucket(settings, connections=connections)

    def shelf_of(tenant_id: str) -> Shelf:
        from services.snapshots.s3 import S3Shelf

        return S3Shelf(bucket(), tenant_id)

    return shelf_of
