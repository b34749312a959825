"""A real runner process for tests, as root or as an ordinary user, and short ways to talk to it."""

import asyncio
import contextlib
import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from agents.contracts.sandbox import ExecRequest, ExecStatus, Owner, SandboxSpec
from services.sandbox.client import RunnerClient
from services.sandbox.home import Home, load
from services.sandbox.records import Intent
from tests.contract.sandbox.watch import EngineWatch, HostWatch, Watch
from tests.support.engine import Engine

CHECKOUT = Path(__file__).parents[3]
AS_USER = Path(__file__).with_name("as_user.py")
ORDINARY_UID = 61_234
TOKEN = "token-of-the-test-runner"


WATCHED: list[Watch] = []


def places() -> list[str]:
    """What a runner can be here: its backend (``LH_TEST_BACKENDS`` names them) and whom it is started as."""
    backends = os.environ.get("LH_TEST_BACKENDS", "namespace").split(",")
    return [f"{backend}/{identity}" for backend in backends for identity in identities(backend)]


def identities(backend: str) -> list[str]:
    """Whom a runner of this backend can be started as here; to reach an engine is to be root."""
    if os.geteuid() != 0:
        return ["ordinary"] if backend == "namespace" else []
    return ["root", "ordinary"] if backend == "namespace" else ["root"]


class RunnerProcess:
    """One runner on a data directory of its own; it can be killed and started again."""

    def __init__(
        self,
        place: str,
        template: Path,
        engine: Engine | None = None,
        *,
        prefix: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.place = place
        self.backend, identity = place.split("/")
        self.switch = identity == "ordinary" and os.geteuid() == 0
        self.engine = engine
        self.data = Path(tempfile.mkdtemp(prefix="lh-runner-"))
        self._template = template
        self._prefix = prefix
        self._more = {"LONGHAUL_RUNNER_BACKEND": self.backend, **(env or {})}
        self.watch: Watch = HostWatch(self.data)
        if engine is not None and self.backend != "namespace":
            self._more["LONGHAUL_RUNNER_ENGINE_URL"] = engine.url
            self._more.setdefault("LONGHAUL_RUNNER_POOL", "0")  # they are dear; tests of the pool ask for one
            self.watch = EngineWatch(engine, self.data, opaque=self.backend == "gvisor")
        WATCHED.append(self.watch)
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.pipe_read, self.pipe_write = os.pipe()
        if self.switch:
            os.chown(self.data, ORDINARY_UID, ORDINARY_UID)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *, ready: bool = True) -> "RunnerProcess":
        """Start it and wait until it answers."""
        if self.pipe_write < 0:
            os.close(self.pipe_read)
            self.pipe_read, self.pipe_write = os.pipe()
        log = (self.data.parent / f"{self.data.name}.log").open("ab")
        with log:
            self.process = subprocess.Popen(
                self._command(), env=self._env(), cwd=CHECKOUT, stdout=log, stderr=log, pass_fds=(self.pipe_read,)
            )
        until = time.monotonic() + 30
        while not self._answers("/readyz" if ready else "/healthz"):
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.05)
        return self

    def _command(self) -> list[str]:
        command = [*self._prefix, sys.executable, "-m", "services.sandbox.main"]
        if not self.switch:
            return command
        paths = {sys.prefix, sys.base_prefix, str(CHECKOUT), str(self._template), str(self.data)}
        return [sys.executable, str(AS_USER), str(ORDINARY_UID), *sorted(paths), "--", *command]

    def _env(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.data),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LONGHAUL_RUNNER_PORT": str(self.port),
            "LONGHAUL_RUNNER_TOKEN": TOKEN,
            "LONGHAUL_RUNNER_DATA_DIR": str(self.data),
            "LONGHAUL_RUNNER_TEMPLATE_DIR": str(self._template),
            "LONGHAUL_RUNNER_PIPE_FD": str(self.pipe_read),
            **self._more,
        }

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(self.url + path, timeout=25):
                return True
        except OSError:
            return False

    def said(self) -> str:
        """Its log."""
        return (self.data.parent / f"{self.data.name}.log").read_text()

    def lives(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL, as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)

    def hang_up(self) -> None:
        """What the launcher's death looks like."""
        os.close(self.pipe_write)
        self.pipe_write = -1

    def remove(self) -> None:
        """End everything and take its files away."""
        for fd in (self.pipe_read, self.pipe_write):
            if fd >= 0:
                os.close(fd)
        if self.lives():
            self.stop()
        until = time.monotonic() + 10
        while self.watch.supervisors() and time.monotonic() < until:
            time.sleep(0.05)
        WATCHED.remove(self.watch)
        shutil.rmtree(self.data, ignore_errors=True)
        (self.data.parent / f"{self.data.name}.log").unlink(missing_ok=True)

    def home(self, sandbox_id: str) -> Home:
        """A sandbox's folder."""
        found = load(self.data / "sandboxes" / sandbox_id)
        assert found is not None
        return found

    def client(self) -> RunnerClient:
        """A client of it."""
        return RunnerClient(self.url, TOKEN)


class Box:
    """A sandbox and a client: what most tests need."""

    def __init__(self, client: RunnerClient, sandbox_id: str) -> None:
        self.client = client
        self.id = sandbox_id

    async def run(self, command: str, *, timeout_s: float = 20, exec_id: str | None = None) -> ExecStatus:
        """Run a command under a new id."""
        return await self.client.exec(self.id, ask(command, timeout_s=timeout_s, exec_id=exec_id))

    async def out(self, command: str) -> str:
        """What a command that must succeed prints."""
        status = await self.run(command)
        assert status.exit_code == 0, status
        return status.output


async def make_box(client: RunnerClient, **fields: object) -> Box:
    """A new sandbox."""
    name = f"sbx_{secrets.token_hex(6)}"
    spec = SandboxSpec.model_validate({"id": name, "tenant_id": "t", "task_id": "task_1", **fields})
    await client.create(spec)
    return Box(client, name)


def owner(agent_fence: int = 1, sandbox_fence: int = 1, agent_id: str = "agent_1") -> Owner:
    return Owner(agent_id=agent_id, agent_fence=agent_fence, sandbox_fence=sandbox_fence)


def ask(command: str, *, timeout_s: float = 20, exec_id: str | None = None, by: Owner | None = None) -> ExecRequest:
    name = exec_id or new_key()
    return ExecRequest(exec_id=name, key=name, owner=by or owner(), command=command, timeout_s=timeout_s)


def new_key() -> str:
    return f"key_{secrets.token_hex(8)}"


def processes(*words: str) -> list[int]:
    """The pids whose command line holds all the words."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().decode("utf-8", "replace")
            except OSError:
                continue
            if all(word in line for word in words) and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def sleeping(mark: str) -> list[int]:
    """The pids of ``sleep MARK`` itself, not of those whose command line only tells of it."""
    line = f"sleep\0{mark}\0".encode()
    found = [pid for watch in WATCHED for pid in watch.sleeping(mark)]
    for pid in processes("sleep", mark):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == line:
                found.append(pid)
    return found


async def until(condition: object, within_s: float = 10) -> None:
    """Wait until a callable is true."""
    assert callable(condition)
    loop = asyncio.get_running_loop()
    limit = loop.time() + within_s
    while not condition():
        assert loop.time() < limit, "it did not come about in time"
        await asyncio.sleep(0.02)


def instance_of(home: Home) -> str:
    """The supervisor under which the sandbox's last command ran."""
    latest = max(home.root.glob("execs/*/intent.json"), key=lambda path: path.stat().st_mtime_ns)
    return str(json.loads(latest.read_text())["instance"])


def write_intent(home: Home, request: ExecRequest, instance: str) -> None:
    """What a runner leaves that was killed after the intent and before the start."""
    folder = home.exec_folder(request.exec_id)
    folder.mkdir()
    intent = folder / "intent.json"
    record = Intent(request=request, instance=instance, created_at=datetime(2026, 1, 1, tzinfo=UTC))
    intent.write_text(record.model_dump_json())
    owned = folder.parent.stat()
    for path in (folder, intent):
        os.chown(path, owned.st_uid, owned.st_gid)


async def stream(data: bytes, piece: int = 65536) -> AsyncIterator[bytes]:
    """Bytes as an upload."""
    for at in range(0, len(data), piece):
        yield data[at : at + piece]


def tar(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> bytes:
    """An archive of these members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def member(
    name: str, data: bytes = b"", *, kind: bytes = tarfile.REGTYPE, to: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    """One member of an archive."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, to, 0o644
    return info, data


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
