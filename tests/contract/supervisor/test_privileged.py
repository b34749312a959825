"""The supervisor as uid 0 of its sandbox, commands as another: then nothing they do reaches it or their keepers."""

import asyncio
import ctypes
import os
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.protocol import Reason
from tests.contract.supervisor.box import Sandbox, Tools, finish, sh
from tests.contract.supervisor.watch import eventually, inside

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="two users in a namespace need root to map them")
FIRST, JOB = 300_000, 10_001
CLONE_NEWUSER = 0x10000000


class Privileged(Sandbox):
    """Bubblewrap started by uid 0 of a user namespace that has a second user; outside both are nobody's."""

    def __init__(self, tools: Tools) -> None:
        super().__init__(tools, "--job-uid", str(JOB), "--job-gid", str(JOB))
        self.uid = None
        os.chown(self.workspace, FIRST + 1, FIRST + 1)

    def argv(self) -> list[str]:
        kept = [word for word in super().argv() if word not in ("--unshare-all", "--unshare-user")]
        caps = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        for name in ("SETUID", "SETGID", "KILL"):
            caps += ["--cap-add", f"CAP_{name}"]
        at = kept.index("ALL") + 1
        return [*kept[:at], *caps, *kept[at:]]

    async def start(self) -> Supervisor:
        ready, mapped = os.pipe(), os.pipe()
        mapping = threading.Thread(target=_map, args=(ready, mapped))  # starting the process waits for it
        mapping.start()
        self.process = await asyncio.create_subprocess_exec(
            *self.argv(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            preexec_fn=_in_namespace(ready, mapped), start_new_session=True,
        )  # fmt: skip
        mapping.join()
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        client = Supervisor(self.process.stdout, self.process.stdin)
        await client.greet()
        return client


def _in_namespace(ready: tuple[int, int], mapped: tuple[int, int]) -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def enter() -> None:
        if libc.unshare(CLONE_NEWUSER) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        os.write(ready[1], str(os.getpid()).encode())
        os.read(mapped[0], 1)
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)

    return enter


def _map(ready: tuple[int, int], mapped: tuple[int, int]) -> None:
    pid = int(os.read(ready[0], 16))
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(f"0 {FIRST} 1\n{JOB} {FIRST + 1} 1\n")
    os.write(mapped[1], b"x")
    for fd in (*ready, *mapped):
        os.close(fd)


@pytest.fixture
async def privileged(tools: Tools) -> AsyncIterator[Supervisor]:
    sandbox = Privileged(tools)
    client = await sandbox.start()
    yield client
    await client.close()
    await sandbox.remove()


async def test_commands_are_another_user_without_any_right(privileged: Supervisor) -> None:
    assert privileged.greeting is not None
    assert (privileged.greeting.own_uid, privileged.greeting.job_uid) == (True, JOB)
    _, out, _ = await finish(privileged, sh("a", "id -u; id -g; id -G; grep -E 'CapEff|NoNew' /proc/self/status"))
    assert out.split() == [b"10001", b"10001", b"10001", b"CapEff:", b"0" * 16, b"NoNewPrivs:", b"1"]


async def test_a_kill_of_everything_reaches_only_commands(privileged: Supervisor) -> None:
    other = await privileged.start(sh("other", "sleep 331.5"))
    await eventually(lambda: inside(privileged, "sleep 331.5"), 1)
    entry, _, _ = await asyncio.wait_for(finish(privileged, sh("a", "kill -9 -1; exit 3")), 10)
    assert (entry.reason, entry.exit_code) == (Reason.EXITED, 3)
    ended = await asyncio.wait_for(other.closed(), 10)
    assert (ended.reason, ended.signal) == (Reason.EXITED, 9), "told exactly: its keeper lives"
    assert await inside(privileged, "sleep 331.5") == 0


async def test_process_1_cannot_be_looked_into_or_signalled(privileged: Supervisor) -> None:
    _, out, _ = await finish(
        privileged, sh("a", "for s in 9 15 19; do kill -$s 1 2>/dev/null && echo sent $s; done; "
                            "cat /proc/1/environ /proc/1/mem >/dev/null 2>&1 && echo read; echo done")
    )  # fmt: skip
    assert out == b"done\n"


async def test_files_are_made_as_the_commands_user(privileged: Supervisor) -> None:
    await privileged.files.write("deep/a", b"x", parents=True)
    _, out, _ = await finish(privileged, sh("a", "stat -c %u deep deep/a; echo y >> deep/a; cat deep/a"))
    assert out == b"10001\n10001\nxy\n"


async def test_a_timeout_ends_commands_of_the_other_user(privileged: Supervisor) -> None:
    entry, _, _ = await finish(privileged, sh("a", "setsid sleep 332.5 & sleep 332.5", timeout_s=0.3, grace_s=0.2))
    assert entry.reason == Reason.TIMEOUT
    assert await inside(privileged, "sleep 332.5") == 0
