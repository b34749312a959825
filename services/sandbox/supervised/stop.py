"""Ends a sandbox from outside, whatever its supervisor does, and knows that nothing of it runs any more."""

import asyncio
import os
import select
import signal
import socket
import struct
from pathlib import Path

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox.supervised.launch import address, in_use
from services.sandbox.waiting import held_end

WITHIN_S, LOOK_S = 20.0, 0.005
_CREDENTIALS = struct.Struct("iII")


async def stop(folder: Path) -> None:
    """End the sandbox in this folder. The end of a PID namespace's first process is the end of all in it, and it counts
    as ended only after them: so its pidfd is the proof.

    Raises:
        LonghaulError: ``SANDBOX_UNAVAILABLE``: it did not end.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + WITHIN_S
    while in_use(folder):
        left = until - loop.time()
        if left <= 0:
            raise LonghaulError(ErrorCode.SANDBOX_UNAVAILABLE, "the sandbox does not end although it was killed")
        if (fd := first_process(folder)) is None:  # just starting, or just ending
            await asyncio.sleep(LOOK_S)
            continue
        try:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            await held_end(fd, left)
        except ProcessLookupError:
            pass
        finally:
            os.close(fd)


def first_process(folder: Path) -> int | None:
    """A pidfd of the process that listens for controllers, or None where it cannot be had now."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.setblocking(False)
            channel.connect(address(held))
            pid, _, _ = _CREDENTIALS.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            return _surely(pid, channel)
    except (OSError, ValueError):
        return None
    finally:
        os.close(held)


def _surely(pid: int, channel: socket.socket) -> int | None:
    """Its pidfd where it is process 1 of a namespace (before that the socket's maker is named), and where it still
    listened when the pidfd was there: then the number had not passed to another."""
    fd = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(channel, 0)
    if not poller.poll(0) and _is_first(pid):
        return fd
    os.close(fd)
    return None


def _is_first(pid: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "NSpid":
            return len(value.split()) > 1 and value.split()[-1] == "1"
    return False
