"""Files on their way: read piece by piece, written beside their place and moved there once the digest is right."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from agents.contracts.artifact import Artifact
from services.client.errors import DigestMismatch

CHUNK_BYTES = 256 << 10
Source = Path | bytes | IO[bytes]


def pieces(source: Source) -> Iterator[bytes]:
    """The bytes of a path, of a binary file that is open, or themselves."""
    if isinstance(source, bytes):
        yield source
    elif isinstance(source, Path):
        with source.open("rb") as file:
            yield from pieces(file)
    else:
        while piece := source.read(CHUNK_BYTES):
            yield piece


def begin_of(source: Source) -> int | None:
    """Where a source begins; None for one that can be read only once, as a pipe can."""
    if isinstance(source, Path | bytes):
        return 0
    return source.tell() if source.seekable() else None


def back_to(source: Source, begin: int | None) -> None:
    """Read it from there again."""
    if begin is not None and not isinstance(source, Path | bytes):
        source.seek(begin)


class Landing:
    """A download on its way to `dest`, a file's path or an existing folder."""

    def __init__(self, artifact: Artifact, dest: Path) -> None:
        self.path = dest / artifact.path.rsplit("/", 1)[-1] if dest.is_dir() else dest
        self._artifact = artifact
        self._digest = hashlib.sha256()
        self.bytes = 0
        handle, self._part = tempfile.mkstemp(prefix=f".{self.path.name[:50]}.", dir=self.path.parent)
        self._file = os.fdopen(handle, "wb")

    def __enter__(self) -> "Landing":
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing half: what was not kept is removed."""
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._part)

    @property
    def headers(self) -> dict[str, str]:
        """What asks for the part that is missing."""
        return {"Range": f"bytes={self.bytes}-", "If-Range": f'"{self._artifact.sha256}"'} if self.bytes else {}

    def write(self, piece: bytes) -> None:
        """Add what came."""
        self._file.write(piece)
        self._digest.update(piece)
        self.bytes += len(piece)

    def keep(self) -> Path:
        """Put the file in its place.

        Raises:
            DigestMismatch: and nothing is there.
        """
        self._file.close()
        if self._digest.hexdigest() != self._artifact.sha256:
            raise DigestMismatch(f"{self._artifact.path}: the bytes that came are not those with the sha256 it has")
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(self._part, 0o666 & ~umask)  # mkstemp is stricter than an ordinary new file
        os.replace(self._part, self.path)
        return self.path
