"""The library of recordings: files in folders, read again when they change. The format is the contracts'."""

import logging
from pathlib import Path

from pydantic import ValidationError

from agents.contracts.recording import Entry, Expect, RecordedReply, Recording, Seen, SpokenCall

__all__ = ["OWN_DIR", "Entry", "Expect", "Library", "RecordedReply", "Recording", "Seen", "SpokenCall"]

log = logging.getLogger(__name__)

OWN_DIR = Path(__file__).parent / "recordings"


class Library:
    """The recordings of some folders, read again when a file changes. A file that cannot be read is named in
    `problems` and left out."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._stamp: tuple[tuple[str, int, int], ...] | None = None
        self._recordings: dict[str, Recording] = {}
        self.problems: list[str] = []

    def recordings(self) -> list[Recording]:
        """All that can be played, by name."""
        self._refresh()
        return [self._recordings[name] for name in sorted(self._recordings)]

    def _refresh(self) -> None:
        files = [path for folder in self._folders for path in sorted(folder.glob("*.json"))]
        stamp = tuple((str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in files)
        if stamp == self._stamp:
            return
        self._recordings, self.problems = {}, []
        for path in files:
            self._load(path)
        self._stamp = stamp

    def _load(self, path: Path) -> None:
        try:
            recording = Recording.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as fault:
            problem = f"{path.name}: {fault}"
        else:
            if recording.name not in self._recordings:
                self._recordings[recording.name] = recording
                return
            problem = f"{path.name}: another file holds a recording named {recording.name!r}"
        self.problems.append(problem)
        log.error("recording left out: %s", problem)
