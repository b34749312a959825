"""What the routes work with: built once by the main, read from ``app.state.parts``."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from services.api.auth import Keyring
from services.api.hub import Hub
from services.api.limits import LimitChecks
from services.recording.recorder import Recorder
from services.snapshots.shelf import Shelf
from services.storage import Storage
from services.store.database import Database
from workflows.ports import Live, Objects

Probe = Callable[[], Awaitable[None]]
"""Returns where a server works, raises where it does not."""


@dataclass(frozen=True)
class Parts:
    """The API's parts. `shelf_of` gives a tenant's snapshots; `model_configured` is whether a user's own model can be
    asked (tiers other than replay)."""

    db: Database
    keyring: Keyring
    objects: Objects
    shelf_of: Callable[[str], Shelf]
    live: Live
    limits: LimitChecks
    storage: Storage
    hub: Hub
    recorder: Recorder
    probes: Mapping[str, Probe]
    model_configured: bool


def _parts(request: Request) -> Parts:
    parts: Parts = request.app.state.parts
    return parts


Using = Annotated[Parts, Depends(_parts)]
