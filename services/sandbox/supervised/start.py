"""The supervisor of a sandbox: found where it lives, started where none does."""

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox.supervised import launch as launching
from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.launch import IN_USE, Launch, address, in_use
from services.sandbox.supervised.messages import LinkLost
from services.sandbox.waiting import held_end

START_WAIT_S, LOOK_S = 20.0, 0.002
ANSWER_WAIT_S = 5.0
LAUNCHER = Path(launching.__file__)


async def find(folder: Path, epoch: int) -> Supervisor | None:
    """The supervisor of the sandbox in this folder, with us as its controller; None where none lives.

    Raises:
        Refused: ``STALE``: a controller with a higher epoch was here.
        LonghaulError: ``SANDBOX_UNAVAILABLE``: one lives, and does not answer.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + ANSWER_WAIT_S
    while True:
        with contextlib.suppress(LinkLost):  # it is just ending, or gives way to another
            if (found := await greeted(folder, epoch)) is not None:
                return found
        if not in_use(folder):
            return None
        if loop.time() >= until:
            raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, "the sandbox's supervisor does not answer")
        await asyncio.sleep(LOOK_S)


async def greeted(folder: Path, epoch: int) -> Supervisor | None:
    """One try: None where nobody listens.

    Raises:
        Refused: as `find`. LinkLost: nobody answers at the socket.
    """
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        streams = await asyncio.open_unix_connection(address(held))
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:
        raise LinkLost from error
    finally:
        os.close(held)
    found = Supervisor(*streams)
    await found.greet(epoch)
    return found


async def find_or_start(launch: Launch, log: Path, epoch: int) -> tuple[Supervisor, subprocess.Popen[bytes] | None]:
    """The supervisor of a sandbox, and the process to be reaped where one was started: the sandbox itself, or one that
    came second and ends with `IN_USE`.

    Raises:
        LonghaulError: ``SPAWN_FAILED``, with the log's last line; else as `find`.
    """
    folder = Path(launch.folder)
    found = await find(folder, epoch)
    if found is not None:
        return found, None
    child = await asyncio.to_thread(_spawn, launch, log)
    loop = asyncio.get_running_loop()
    until = loop.time() + START_WAIT_S
    while loop.time() < until:
        with contextlib.suppress(LinkLost):  # one that is just ending, or gives way to ours
            if (found := await greeted(folder, epoch)) is not None:
                return found, child
        code = child.poll()
        if code == IN_USE and not in_use(folder):  # the one before ours has ended since
            child = await asyncio.to_thread(_spawn, launch, log)
        elif code not in (None, IN_USE):
            break
        await asyncio.sleep(LOOK_S)
    child.kill()
    await asyncio.to_thread(child.wait)
    lines = (await asyncio.to_thread(log.read_text, errors="replace")).splitlines()
    raise LonghaulError(ErrorCode.SPAWN_FAILED, f"no sandbox could be started: {lines[-1] if lines else 'no word'}")


async def reaped(child: subprocess.Popen[bytes]) -> None:
    """Wait for its end, and collect it."""
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(child.pid)
        try:
            await held_end(fd, None)
        finally:
            os.close(fd)
    child.poll()


def _spawn(launch: Launch, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as said:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LAUNCHER)],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            cwd="/",
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            start_new_session=True,
            pass_fds=[launch.leash_fd] if launch.leash_fd >= 0 else [],
        )
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError), child.stdin as pipe:  # its end tells
            pipe.write(launch.encode())
    return child
