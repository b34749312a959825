"""Ends the sandboxes of an engine with the launcher: ``python -I -S leash.py FD LOCK ENGINE OWNER``.

An engine's containers hold no pipe of ours, and a killed runner cannot end them. So this process waits for the end of
file of the launcher's pipe, alone and small; then it becomes ``python -m services.sandbox.engine.leash``, which removes
every container of the owner. Without any of it a sandbox ends by itself, when nobody has spoken to its supervisor for
a while.
"""

import asyncio
import fcntl
import os
import select
import subprocess
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
TRIES, PAUSE_S = 10, 3.0
GRACE_S = 5


def put_on(pipe_fd: int, lock: Path, url: str, owner: str) -> None:
    """Start it; where one waits already, the second ends at once."""
    command = [sys.executable, "-I", "-S", __file__, str(pipe_fd), str(lock), url, owner]
    env = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    with open(os.devnull, "rb+") as null:
        subprocess.Popen(
            command,
            stdin=null,
            stdout=null,
            stderr=null,
            cwd=CHECKOUT,
            env=env,
            start_new_session=True,
            pass_fds=[pipe_fd],
        )


def wait(pipe_fd: int, lock: str, url: str, owner: str) -> None:
    """Wait for the launcher's end; never returns where there was one to wait for."""
    held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    poller = select.poll()
    poller.register(pipe_fd, 0)
    poller.poll()
    os.set_inheritable(held, True)
    os.execv(sys.executable, [sys.executable, "-m", "services.sandbox.engine.leash", url, owner])


async def pull(url: str, owner: str) -> None:
    """End and remove every container of an owner."""
    from services.sandbox.engine.client import EngineClient
    from services.sandbox.engine.containers import Containers

    containers = Containers(EngineClient(url), Path(), 0, owner)

    async def one(name: str) -> None:
        await containers.end(name, GRACE_S)
        await containers.destroy(name)

    async with asyncio.TaskGroup() as group:
        for found in await containers.list():
            group.create_task(one(found.name))


def main() -> None:
    """Try until it is done: an engine may just be starting again."""
    for _ in range(TRIES):
        try:
            asyncio.run(pull(*sys.argv[1:]))
        except Exception as error:
            print(error, file=sys.stderr)
            time.sleep(PAUSE_S)
        else:
            return


if __name__ == "__main__":
    if len(sys.argv) == 5:
        wait(int(sys.argv[1]), *sys.argv[2:])
    else:
        main()
