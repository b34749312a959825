"""What a sandbox's last snapshot saw of each file, so that the next one reads only what may have changed.

A file counts as unchanged where inode, size, mode, and the times of its content and of its state are those it had. The
last cannot be set by whoever owns the file, so a time that was put back is noticed.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.contracts.artifact import BlobRef

VERSION = 1
State = list[Any]
"""Kind (f, d or l), mode, inode, size, mtime_ns, ctime_ns."""
Row = list[Any]
"""An entry's state, and its content in hex: chunks, tree or target; None until it is known."""
KIND, MODE, INODE, SIZE, MTIME, CTIME = range(6)
STATE, CONTENT = range(2)
RACY_NS = 100_000_000
"""A file that changed so shortly before it was looked at may change again without its times showing it."""


@dataclass
class Memory:
    """Of the snapshot `ref`: per folder its tree's digest and a row per entry. Empty where nothing is remembered."""

    ref: BlobRef | None = None
    folders: dict[str, tuple[str, dict[str, Row]]] = field(default_factory=dict)


def recall(path: Path) -> Memory:
    """What is remembered there; nothing where it cannot be read, which costs time and nothing else."""
    try:
        stored = json.loads(path.read_bytes())
        if stored["version"] != VERSION:
            return Memory()
        folders = {name: (tree, rows) for name, (tree, rows) in stored["folders"].items()}
        return Memory(BlobRef.model_validate(stored["ref"]), folders)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Memory()


def remember(path: Path, memory: Memory) -> None:
    """Write it down, whole or not at all."""
    assert memory.ref is not None
    made = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    stored = {"version": VERSION, "ref": memory.ref.model_dump(), "folders": memory.folders}
    made.write_text(json.dumps(stored, separators=(",", ":")))
    made.rename(path)
