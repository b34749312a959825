"""The supervisor of a sandbox: found where it lives, started where none does."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox.supervised.client import Supervisor
from services.sandbox.supervised.launch import IN_USE, Launch, address, in_use
from services.sandbox.supervised.messages import LinkLost
from services.sandbox.supervised.spawner import Child, Spawner

START_WAIT_S, LOOK_S = 20.0, 0.002
ANSWER_WAIT_S = 5.0


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


async def find_or_start(launch: Launch, log: Path, epoch: int, spawner: Spawner) -> tuple[Supervisor, Child | None]:
    """The supervisor of a sandbox, and the process where one was started: the sandbox itself, or one that came second
    and ends with `IN_USE`.

    Raises:
        LonghaulError: ``SPAWN_FAILED``, with the log's last line; else as `find`.
    """
    folder = Path(launch.folder)
    found = await find(folder, epoch)
    if found is not None:
        return found, None
    child = await spawner.spawn(launch, log)
    loop = asyncio.get_running_loop()
    until = loop.time() + START_WAIT_S
    while loop.time() < until:
        with contextlib.suppress(LinkLost):  # one that is just ending, or gives way to ours
            if (found := await greeted(folder, epoch)) is not None:
                return found, child
        if child.ended.is_set() and not in_use(folder):
            if child.code not in (None, IN_USE):
                break
            child = await spawner.spawn(launch, log)  # the one before ours has ended since
        await asyncio.sleep(LOOK_S)
    with contextlib.suppress(ProcessLookupError):
        if not child.ended.is_set():
            os.kill(child.pid, signal.SIGKILL)
    lines = (await asyncio.to_thread(log.read_text, errors="replace")).splitlines()
    raise LonghaulError(ErrorCode.SPAWN_FAILED, f"no sandbox could be started: {lines[-1] if lines else 'no word'}")
