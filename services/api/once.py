"""The Idempotency-Key of a request."""

import hashlib
import json
from typing import Annotated

from fastapi import Header
from pydantic import BaseModel

from services.api.problems import invalid
from services.store.idempotency import Once

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key", description="A name of your own for this request: repeating it repeats the answer."
    ),
]


def once_of(tenant_id: str, key: str | None, body: BaseModel, path: str = "") -> Once | None:
    """The request under its key, or None where it has none. `path` tells requests apart whose bodies may be alike.

    Raises:
        LonghaulError: ``VALIDATION_FAILED`` for a key that cannot be one.
    """
    if key is None:
        return None
    if not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        raise invalid("Idempotency-Key", "must be 1 to 255 printable ASCII characters")
    # the same for bodies that say the same, whatever their spaces and the order of their fields
    said = path + json.dumps(body.model_dump(mode="json", exclude_unset=True), sort_keys=True)
    return Once(tenant_id, key, hashlib.sha256(said.encode()).hexdigest())
