"""Snapshots of sandboxes: taken once a key, and written into new ones."""

import hashlib
from collections.abc import Callable

from agents.contracts.artifact import BlobRef
from agents.contracts.sandbox import Snapshot, StateReport
from services.sandbox.capture import capture
from services.sandbox.files import journaled
from services.sandbox.home import Home
from services.sandbox.records import FileJournal, write
from services.sandbox.remembered import Memory, remember
from services.sandbox.restore import restore
from services.snapshots.faults import cannot_be_kept
from services.snapshots.shelf import Remembering, Shelf
from services.storage import NO_SPACE

_REQUEST = hashlib.sha256(b"snapshot").hexdigest()


class Snapshots:
    """What a runner needs for them: `shelf_of` gives a tenant's shelf; it is asked when the first one is wanted."""

    def __init__(self, shelf_of: Callable[[str], Shelf]) -> None:
        self._shelf_of = shelf_of

    def take(self, home: Home, key: str, state: StateReport | None = None) -> Snapshot:
        """Keep the workspace, in which nothing changes meanwhile. A repeat answers what the first one did.

        Raises:
            LonghaulError: ``SNAPSHOT_FAILED``, ``OBJECTS_UNAVAILABLE``, ``VALIDATION_FAILED`` for another call's key.
        """
        entry = journaled(home, key, _REQUEST)
        if entry is not None and entry.snapshot is not None:
            return entry.snapshot
        try:
            done = capture(home.workspace, self._shelf(home), home.seen)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise
            raise cannot_be_kept(f"the workspace cannot be read: {error.strerror}") from error
        taken = Snapshot(
            manifest=done.ref,
            files=done.manifest.files,
            folders=done.manifest.folders,
            links=done.manifest.links,
            bytes=done.manifest.bytes,
            added_bytes=done.added_bytes,
            state=state,
        )
        write(home.journal(key), FileJournal(key=key, request_sha256=_REQUEST, snapshot=taken, done=True))
        return taken

    def fill(self, home: Home, ref: BlobRef) -> None:
        """Write a snapshot into a sandbox that is being made. Its next snapshot builds on this one.

        Raises:
            LonghaulError: ``SNAPSHOT_NOT_FOUND``, ``SNAPSHOT_FAILED``, ``OBJECTS_UNAVAILABLE``.
        """
        restore(self._shelf(home), ref, home.workspace, home.meta.uid)
        remember(home.seen, Memory(ref))

    def _shelf(self, home: Home) -> Shelf:
        return Remembering(self._shelf_of(home.meta.tenant_id), home.root / "index")
