"""Collecting what no snapshot needs any more: mark what is reachable, condemn the rest, take it away at a later run.

Nothing is taken away in the run that finds it. What is unreachable and old is marked (`condemned/{name}`); what was
marked a whole `grace` ago and is unreachable still is deleted. A snapshot under way never builds on anything that is
marked, and takes less than the grace; so what it found unmarked when it began cannot go before it has said, by its
manifest, that it needs it.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from agents.contracts.artifact import BlobRef
from services.snapshots.manifest import Manifest
from services.snapshots.reading import read_index, read_manifest
from services.snapshots.shelf import CONDEMNED, INDEX, MANIFESTS, PACKS, Kept, Shelf

GRACE = timedelta(hours=24)
"""Four times what a snapshot may take at most (`writing.LONGEST_S`)."""


@dataclass(frozen=True)
class Collected:
    """What a run did: parts kept, marked to go, and taken away with their bytes."""

    kept: int
    condemned: int
    deleted: int
    deleted_bytes: int


def collect(shelf: Shelf, live: Callable[[], Collection[str]], now: datetime, grace: timedelta = GRACE) -> Collected:
    """One run over a tenant's shelf. `live` gives the sha256 of the manifests that are wanted; it is asked after the
    shelf was looked over, so a manifest whose wish is recorded meanwhile is found. `now` is by the store's clock.

    Raises:
        LonghaulError: ``OBJECTS_UNAVAILABLE``; ``SNAPSHOT_FAILED`` where a wanted snapshot is damaged: then nothing is
            taken away, because what it needs is not known.
    """
    parts = {part.name: part for part in shelf.names() if not part.name.startswith(CONDEMNED)}
    marks = _marks(shelf, parts)
    wanted = {MANIFESTS + name for name in live()}
    ripe = {name for name, since in marks.items() if since <= now - grace}
    staying = [name for name in parts if name.startswith(MANIFESTS) and (name in wanted or name not in ripe)]
    held = _needed(shelf, staying) | wanted
    condemned = [name for name in parts.keys() - held - marks.keys() if parts[name].modified <= now - grace]
    deleted = ripe - held
    for name in condemned:
        shelf.put(CONDEMNED + name, b"")
    for name in deleted:
        shelf.delete(name)
    for name in deleted | (marks.keys() & held):
        shelf.delete(CONDEMNED + name)
    freed = sum(parts[name].bytes for name in deleted)
    return Collected(len(parts) - len(deleted), len(condemned), len(deleted), freed)


def _marks(shelf: Shelf, parts: dict[str, Kept]) -> dict[str, datetime]:
    """When each part was marked. A mark that is older than its part is of an earlier part of that name: what is left
    of a run that was cut off, and is taken away."""
    marks: dict[str, datetime] = {}
    for mark in shelf.names(CONDEMNED):
        part = parts.get(mark.name.removeprefix(CONDEMNED))
        if part is not None and part.modified <= mark.modified:
            marks[part.name] = mark.modified
        else:
            shelf.delete(mark.name)
    return marks


def _needed(shelf: Shelf, names: Collection[str]) -> set[str]:
    """The segments that these manifests name, and every pack that is named in those: also one of which no tree needs an
    object any more, because a snapshot that builds on such a manifest may find one there that it needs."""
    segments = {segment for name in names for segment in _manifest(shelf, name).segments}
    packs = {spot.block.pack for segment in segments for spot in read_index(shelf, [segment]).values()}
    return {PACKS + pack.hex() for pack in packs} | {INDEX + segment for segment in segments}


def _manifest(shelf: Shelf, name: str) -> Manifest:
    return read_manifest(shelf, BlobRef(sha256=name.removeprefix(MANIFESTS), bytes=0))
