"""Uploads in parts whose sender was killed: their parts take room in the store and will never be an object."""

import asyncio
import logging
from datetime import timedelta
from typing import Protocol

from agents.contracts.errors import LonghaulError

log = logging.getLogger(__name__)

ABANDONED = timedelta(days=1)
"""One that was begun so long ago is nobody's any more: the largest body there is takes minutes."""
EVERY_S = 3_600.0


class HasUploads(Protocol):
    """The part of the store that is needed here."""

    async def abort_uploads(self, older_than: timedelta) -> int:
        """See `S3Objects`; raises ``OBJECTS_UNAVAILABLE``."""
        ...


async def give_up_abandoned(objects: HasUploads, *, every_s: float = EVERY_S) -> None:
    """Give up what is too old, every hour until cancelled. Any number of processes may."""
    while True:
        try:
            if found := await objects.abort_uploads(older_than=ABANDONED):
                log.warning("uploads that nobody ended were given up", extra={"uploads": found})
        except LonghaulError as fault:
            log.warning("abandoned uploads are looked for again later: %s", fault)
        await asyncio.sleep(every_s)
