"""A folder, a shelf, and the notes between two snapshots."""

import hashlib
import os
import secrets
from pathlib import Path

from agents.contracts.artifact import BlobRef
from services.sandbox.capture import capture
from services.sandbox.remembered import Memory, remember
from services.sandbox.restore import restore
from services.snapshots.manifest import Manifest, pack_manifest
from services.snapshots.shelf import FolderShelf, Shelf
from services.snapshots.writing import Writer, Written


class Room:
    """Where a test works."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.work = top / f"work-{secrets.token_hex(4)}"
        self.work.mkdir()
        self.shelf: Shelf = FolderShelf(top / "shelf")
        self.notes = self.work.with_suffix(".notes")

    def take(self) -> Written:
        """A snapshot of the folder as it is."""
        return capture(self.work, self.shelf, self.notes)

    def back(self, ref: BlobRef) -> Path:
        """The snapshot in a fresh folder."""
        target = self.top / f"back-{secrets.token_hex(4)}"
        target.mkdir()
        restore(self.shelf, ref, target, None)
        return target

    def fork(self) -> "Room":
        """Another folder that keeps on the same shelf."""
        other = Room(self.top)
        other.shelf = self.shelf
        return other

    def write(self, path: str, data: bytes) -> Path:
        """A file of the folder."""
        target = self.work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return target

    def begin_from(self, ref: BlobRef) -> None:
        """What a restore leaves: the next snapshot builds on this one."""
        remember(self.notes, Memory(ref))

    def keep(self, manifest: Manifest) -> BlobRef:
        """Put a manifest on the shelf, whatever it says."""
        data = pack_manifest(manifest)
        name = hashlib.sha256(data).hexdigest()
        self.shelf.put(f"manifests/{name}", data)
        return BlobRef(sha256=name, bytes=len(data))

    def forge(self, trees: list[bytes]) -> BlobRef:
        """A snapshot of these trees, the last being its top, that says it holds nothing."""
        with Writer(self.shelf, None) as writer:
            for tree in trees:
                root = writer.add_tree(tree)
            said = Manifest(root=root.hex(), mode=0o755, segments=(), files=0, folders=1, links=0, bytes=0)
            return writer.commit(said, lambda: ()).ref

    def parts(self, prefix: str) -> set[str]:
        """The names on the shelf."""
        return {part.name for part in self.shelf.names(prefix)}


def noise(size: int) -> bytes:
    """Bytes that do not compress."""
    return os.urandom(size)
