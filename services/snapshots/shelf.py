"""Where the parts of snapshots are kept: names to bytes, one shelf a tenant.

packs/{blake3}       blocks of objects         index/{blake3}   where the objects of some packs lie
manifests/{sha256}   one a snapshot            condemned/{name} marked by a collection, to go at a later one
"""

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from blake3 import blake3

from agents.contracts.errors import ErrorCode, LonghaulError

PACKS, INDEX, MANIFESTS, CONDEMNED = "packs/", "index/", "manifests/", "condemned/"
_SALTS = 16


@dataclass(frozen=True, slots=True)
class Kept:
    """A stored part: its name, its size, and when it was written (by the store's clock)."""

    name: str
    bytes: int
    modified: datetime


class Shelf(Protocol):
    """One tenant's parts. Calls block, may come from many threads, and raise ``OBJECTS_UNAVAILABLE`` (try again)."""

    def put(self, name: str, data: bytes) -> bool:
        """Keep bytes unless the name is taken; whether it was free."""
        ...

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes, or `length` of them from `start` on. ``NOT_FOUND``; fewer bytes than asked at the part's end."""
        ...

    def has(self, name: str) -> bool:
        """Whether the name is taken."""
        ...

    def names(self, prefix: str = "") -> Iterator[Kept]:
        """Everything whose name begins so, in the order of names."""
        ...

    def delete(self, name: str) -> None:
        """Take it away; what is not there is no fault."""
        ...


def keep(shelf: Shelf, prefix: str, made: Callable[[int], tuple[str, bytes]]) -> str:
    """Keep a part whose name follows from its bytes. One that is there already is used, unless a collection is about
    to take it away: then the same content is kept once more, with another salt. `made` gives name and bytes."""
    for salt in range(_SALTS):
        name, data = made(salt)
        if shelf.put(prefix + name, data) or not shelf.has(CONDEMNED + prefix + name):
            return name
    raise LonghaulError(ErrorCode.OBJECTS_UNAVAILABLE, "the object store gives back nothing that it takes away")


class FolderShelf:
    """A shelf in a folder of this host: for one machine, and for tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, data: bytes) -> bool:
        """Written beside it, then linked under its name."""
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        made = target.with_name(f".{secrets.token_hex(8)}")
        made.write_bytes(data)
        try:
            os.link(made, target)
        except FileExistsError:
            return False
        finally:
            made.unlink()
        return True

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """A part of the file."""
        try:
            with (self._folder / name).open("rb") as file:
                file.seek(start)
                return file.read(-1 if length is None else length)
        except FileNotFoundError as error:
            raise LonghaulError(ErrorCode.NOT_FOUND, "there is no such object") from error

    def has(self, name: str) -> bool:
        """Whether the file is there."""
        return (self._folder / name).is_file()

    def names(self, prefix: str = "") -> Iterator[Kept]:
        """A walk."""
        paths = sorted(p for p in self._folder.rglob("*") if p.is_file() and not p.name.startswith("."))
        for path in paths:
            name, found = path.relative_to(self._folder).as_posix(), path.stat()
            if name.startswith(prefix):
                yield Kept(name, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def delete(self, name: str) -> None:
        """Unlink."""
        (self._folder / name).unlink(missing_ok=True)


class Remembering:
    """A shelf that keeps the index it has seen in a folder of this host, where a damaged file is fetched anew."""

    def __init__(self, shelf: Shelf, folder: Path) -> None:
        self._shelf = shelf
        self._near = FolderShelf(folder)

    def put(self, name: str, data: bytes) -> bool:
        """Far first: what is near was stored."""
        new = self._shelf.put(name, data)
        if name.startswith(INDEX):
            self._near.put(name, data)
        return new

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Near where it is."""
        if not name.startswith(INDEX):
            return self._shelf.get(name, start, length)
        if self._near.has(name):
            data = self._near.get(name)
            if blake3(data).hexdigest() == name.removeprefix(INDEX):
                return data
            self._near.delete(name)
        data = self._shelf.get(name)
        self._near.put(name, data)
        return data

    def has(self, name: str) -> bool:
        """As the far one says."""
        return self._shelf.has(name)

    def names(self, prefix: str = "") -> Iterator[Kept]:
        """As the far one says."""
        return self._shelf.names(prefix)

    def delete(self, name: str) -> None:
        """On both."""
        self._near.delete(name)
        self._shelf.delete(name)
