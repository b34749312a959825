"""Snapshots, forks and collections in any order and at any time: what is wanted comes back, what is not goes."""

import os
import random
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.contracts.artifact import BlobRef
from services.sandbox.capture import capture
from services.sandbox.restore import restore
from services.snapshots.collect import collect
from services.snapshots.shelf import FolderShelf
from services.snapshots.writing import LONGEST_S
from tests.support.trees import State, state
from tests.unit.snapshots.room import Room

HOUR = timedelta(hours=1)


@dataclass
class World:
    """Where it happens: a clock, a shelf whose parts bear its times, folders, and the snapshots that are wanted."""

    top: Path
    chance: random.Random
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    rooms: list[Room] = field(default_factory=list)
    wanted: dict[str, tuple[BlobRef, dict[bytes, State]]] = field(default_factory=dict)

    def collect(self, shelf: FolderShelf) -> None:
        collect(shelf, lambda: set(self.wanted), self.at)

    def check(self) -> None:
        """Everything that is wanted comes back."""
        for ref, was in self.wanted.values():
            assert state(self.rooms[0].back(ref)) == was


class Timed(FolderShelf):
    """Its parts bear the times of the world; while one is put, time may pass and collections may run."""

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder
        self._world = world
        self.passing = timedelta()

    def put(self, name: str, data: bytes) -> bool:
        new = super().put(name, data)
        if new:
            os.utime(self._path / name, (self._world.at.timestamp(), self._world.at.timestamp()))
        if self.passing and not name.startswith("condemned/"):
            step, self.passing = self.passing, timedelta()
            self._world.at += step
            self._world.collect(self)
            self.passing = step if self._world.chance.random() < 0.5 else timedelta()
        return new


def change(world: World, room: Room) -> None:
    for _ in range(world.chance.randrange(4)):
        name = world.chance.choice(["a", "b", "d/a", "d/b", "d/e/a"])
        content = world.chance.choice([b"same", b"", world.chance.randbytes(2_000), bytes(3_000)])
        room.write(name, content)


def take(world: World, shelf: Timed, room: Room) -> None:
    change(world, room)
    if world.chance.random() < 0.5:  # it takes long, and collections run meanwhile
        shelf.passing = timedelta(seconds=LONGEST_S / 5)
    done = capture(room.work, shelf, room.notes)
    shelf.passing = timedelta()
    world.wanted[done.ref.sha256] = (done.ref, state(room.work))


def fork(world: World, shelf: Timed) -> None:
    if world.wanted:
        ref, _ = world.chance.choice(list(world.wanted.values()))
        made = world.rooms[0].fork()
        restore(shelf, ref, made.work, None)
        made.begin_from(ref)
        world.rooms.append(made)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_what_is_wanted_comes_back_and_the_rest_goes(seed: int) -> None:
    with tempfile.TemporaryDirectory() as top:
        world = World(Path(top), random.Random(seed))
        shelf = Timed(world, Path(top) / "shelf")
        first = Room(world.top)
        first.shelf = shelf
        world.rooms.append(first)
        for _ in range(25):
            act = world.chance.random()
            if act < 0.4:
                take(world, shelf, world.chance.choice(world.rooms))
            elif act < 0.5:
                fork(world, shelf)
            elif act < 0.65 and world.wanted:
                del world.wanted[world.chance.choice(list(world.wanted))]
            else:
                world.at += HOUR * world.chance.choice([1, 5, 20, 30])
                world.collect(shelf)
        world.check()
        world.wanted.clear()
        for _ in range(6):
            world.at += 25 * HOUR
            world.collect(shelf)
        assert not list(shelf.names())
