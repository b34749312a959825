"""What a sandbox's last snapshot saw of each file, so that the next one reads only what may have changed.

A file counts as unchanged where inode, size, mode, and the times of its content and of its state are those it had. The
last cannot be set by whoever owns the file, so a time that was put back is noticed.
"""

import marshal
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
        version, ref, folders = marshal.loads(path.read_bytes())
        return Memory(BlobRef.model_validate(ref), folders) if version == VERSION else Memory()
    except (OSError, ValueError, EOFError, TypeError):
        return Memory()


def remember(path: Path, memory: Memory) -> None:
    """Write it down, whole or not at all: in Python's own form, which reads three times as fast as JSON. The file lies
    where nothing in a sandbox reaches."""
    assert memory.ref is not None
    made = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    made.write_bytes(marshal.dumps((VERSION, memory.ref.model_dump(), memory.folders)))
    made.rename(path)
