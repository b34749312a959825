"""Packing a folder as a task's workspace."""

import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from services.cli.exits import CliError

MAX_BYTES = 512 << 20
_SKIPPED = {".git", ".hg", ".svn"}


def pack(folder: Path, max_bytes: int = MAX_BYTES) -> IO[bytes]:
    """A gzipped tar of a folder, open at its start, in a temporary file that goes when it is closed. In a git checkout:
    what git tracks or would track (``.gitignore`` counts); else everything. Never the repository's own ``.git``.

    Raises:
        CliError: no folder, nothing in it, or more than `max_bytes`.
    """
    if not folder.is_dir():
        raise CliError(f"--repo {folder}: there is no such folder.")
    names = sorted(set(_git_files(folder) or _all_files(folder)))
    if not names:
        raise CliError(f"--repo {folder}: there is nothing to send in it.")
    sizes = {name: (folder / name).lstat().st_size for name in names}
    if sum(sizes.values()) > max_bytes:
        raise CliError(_too_large(folder, sizes, max_bytes))
    packed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as tar:
        for name in names:
            tar.add(folder / name, arcname=name, recursive=False, filter=_anonymous)
    packed.seek(0)
    return packed


def _git_files(folder: Path) -> list[str]:
    """Names relative to the folder; empty where git is not there or the folder is in no checkout."""
    argv = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(argv, capture_output=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return []
    names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name] if listed.returncode == 0 else []
    return [name for name in names if _sendable(folder / name)]


def _all_files(folder: Path) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        links = [name for name in folders if (Path(here) / name).is_symlink()]
        for name in [*files, *links]:
            path = Path(here) / name
            if _sendable(path):
                yield str(path.relative_to(folder))


def _sendable(path: Path) -> bool:
    """Files and symbolic links; a file that git still lists may be gone."""
    return path.is_symlink() or path.is_file()


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Who owns the files here is nobody's business there."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _too_large(folder: Path, sizes: Mapping[str, int], max_bytes: int) -> str:
    largest = ", ".join(f"{n} ({sizes[n] / 1e6:.0f} MB)" for n in sorted(sizes, key=sizes.__getitem__)[:-4:-1])
    return (
        f"--repo {folder}: it holds more than {max_bytes >> 20} MiB. The largest files: {largest}. "
        "List what is not needed in .gitignore, or send a smaller folder."
    )
