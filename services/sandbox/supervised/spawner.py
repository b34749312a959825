"""The runner's side of the process that starts sandboxes (`forks.py`)."""

import asyncio
import contextlib
import json
import sys
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path

from agents.contracts.errors import ErrorCode, LonghaulError
from services.sandbox.supervised import forks
from services.sandbox.supervised.launch import Launch

FORKS = Path(forks.__file__)


@dataclass(eq=False)
class Child:
    """A sandbox's first process, as the host sees it. `code`: how it ended; None where nobody can tell any more."""

    pid: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    code: int | None = None


class Spawner:
    """Starts the process at the first launch, and again where it is gone. What was started does not end with it."""

    def __init__(self, leash_fd: int) -> None:
        self._leash_fd = leash_fd
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._asked: deque[asyncio.Future[Child]] = deque()
        self._children: dict[int, Child] = {}

    @property
    def pid(self) -> int | None:
        """The process, where one was started."""
        return self._process.pid if self._process is not None else None

    async def spawn(self, launch: Launch, log: Path) -> Child:
        """Start one; what it has to say goes to `log`.

        Raises:
            LonghaulError: ``SPAWN_FAILED``: nothing was started, as far as is known.
        """
        try:
            stdin = await self._input()
        except OSError as error:
            raise LonghaulError(ErrorCode.SPAWN_FAILED, f"no process can be started: {error}") from error
        answer: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        stdin.write(json.dumps({"launch": asdict(launch), "log": str(log)}).encode() + b"\n")
        return await answer

    async def _input(self) -> asyncio.StreamWriter:
        if self._process is None or self._reading is None or self._reading.done():
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(FORKS)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
                start_new_session=True,
                pass_fds=[self._leash_fd] if self._leash_fd >= 0 else [],
            )
            self._reading = asyncio.create_task(self._read(self._process))
        assert self._process.stdin is not None
        return self._process.stdin

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                self._take(**json.loads(line))
        finally:
            for child in self._children.values():
                child.ended.set()
            self._children.clear()
            for answer in self._asked:
                if not answer.done():
                    answer.set_exception(LonghaulError(ErrorCode.SPAWN_FAILED, "what starts sandboxes has ended"))
            self._asked.clear()

    def _take(self, pid: int, code: int | None = None) -> None:
        if code is None:
            child = self._children[pid] = Child(pid)
            if not (answer := self._asked.popleft()).done():
                answer.set_result(child)
        elif (ended := self._children.pop(pid, None)) is not None:
            ended.code = code
            ended.ended.set()

    async def close(self) -> None:
        """End the process; sandboxes go on."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            if self._reading is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await self._reading
            await self._process.wait()
