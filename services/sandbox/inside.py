"""What every backend shows inside: the environment of commands, /etc, and this host's programs, read-only."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from services.sandbox.template import VENV

HOME = "/tmp/home"
SHM_BYTES = 64 << 20
AT_HOME = {"HOME": HOME, "USER": "user", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
ENVIRONMENT = {
    "PATH": f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin",
    **AT_HOME,
    "MPLCONFIGDIR": f"{HOME}/matplotlib",
}
_TEXTS = {
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "gitconfig": "[user]\n\tname = Longhaul\n\temail = longhaul@localhost\n[init]\n\tdefaultBranch = main\n",
}
_COPIED = ("ld.so.cache", "localtime", "mime.types", "ssl/openssl.cnf")
_BOUND = ("alternatives", "ssl/certs")
_TOPS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def users(uid: int) -> dict[str, str]:
    """The files of /etc that name users, where commands run as this one."""
    rows = ("root:x:0:0:root:/:/usr/sbin/nologin", f"user:x:{uid}:{uid}:user:{HOME}:/bin/sh")
    nobody = "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin"
    return {
        "passwd": "\n".join((*rows, nobody, "")),
        "group": f"root:x:0:\nuser:x:{uid}:\nnogroup:x:65534:\n",
    }


def write_etc(etc: Path, uid: int) -> None:
    """Lay down /etc, readable whatever the umask of the installer was."""
    for name in _BOUND:
        (etc / name).mkdir(parents=True, exist_ok=True)
    for name, text in {**users(uid), **_TEXTS}.items():
        replace(etc / name, text.encode(), 0o644)
    for name in _COPIED:
        if (Path("/etc") / name).is_file():
            copy(Path("/etc") / name, etc / name, 0o644)


def place_program(built: Path, ours: Path) -> str | None:
    """Have a copy of the supervisor, as it was built for this machine; what to do where there is none."""
    with contextlib.suppress(FileNotFoundError):  # another checkout may have removed it; then the copy will do
        copy(built, ours, 0o755)
    if ours.is_file():
        return None
    return (
        "the sandboxes' supervisor is not built: run `make setup`, which needs a C compiler (apt install gcc "
        f"libc6-dev) or fetches one; it is looked for at {built}"
    )


def programs() -> list[str]:
    """The host's folders with programs and libraries: /usr, and the top ones that are no links into it."""
    return ["/usr", *(str(path) for path in _tops() if path.is_dir() and not path.is_symlink())]


def links() -> Iterator[tuple[str, str]]:
    """The top folders that are links, as (path, target)."""
    yield from ((str(path), os.readlink(path)) for path in _tops() if path.is_symlink())


def configuration() -> list[str]:
    """The folders of the host's /etc that are shown inside."""
    return [f"/etc/{name}" for name in _BOUND if (Path("/etc") / name).is_dir()]


def _tops() -> Iterator[Path]:
    yield from (Path("/", name) for name in _TOPS)


def copy(source: Path, target: Path, mode: int) -> None:
    """Copy a file below the folder `shared`; whole or not at all."""
    replace(target, source.read_bytes(), mode)


def replace(target: Path, data: bytes, mode: int) -> None:
    """Put a file below the folder `shared`, whole or not at all, and let others pass to it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for folder in (target.parent, *target.parent.parents[:2]):
        if folder.stat().st_uid == os.geteuid() and "shared" in folder.parts:
            folder.chmod(0o755)
    if target.exists() and target.read_bytes() == data:
        target.chmod(mode)
        return
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.chmod(mode)
    temporary.rename(target)
