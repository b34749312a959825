"""Turns as they pass through their ports: when each begins, what its parts take, and what is stored."""

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.contracts.artifact import BlobRef
from agents.contracts.run import AgentRef
from agents.contracts.sandbox import ExecRequest, ExecStatus
from services.inference.body import prompt_chars
from tests.bench.turns.quick import QuickRunner

OUTPUT = "x" * 20 * 1024


@dataclass
class Mark:
    """The beginning of a turn: seconds until then, by what they went into; `burst` where it is the first of its burst.
    `own` is wall time without model calls, commands and the watching, `cpu` that of this process in `own`."""

    turn: int
    burst: bool
    seconds: dict[str, float]


class Log:
    """One agent's turns."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.requests: dict[int, int] = {}
        """The characters of each turn's request."""
        self._spent: dict[str, float] = defaultdict(float)
        self._away = [0.0, 0.0]
        self._opened = False

    def open(self) -> None:
        """A burst begins: its first turn is marked here, so that what it reads is that turn's."""
        self._opened = True
        self._mark(0, burst=True)

    def begin(self, turn: int) -> None:
        """A turn is opened."""
        if self._opened:
            self.marks[-1].turn, self._opened = turn, False
        else:
            self._mark(turn, burst=False)

    async def part(self, name: str, work: Awaitable[Any]) -> Any:
        """A part of a turn's own work."""
        begun = time.perf_counter()
        try:
            return await work
        finally:
            self._spent[name] += time.perf_counter() - begun

    async def apart(self, name: str, work: Awaitable[Any]) -> Any:
        """Something that does not count as a turn's own work."""
        before = _now()
        try:
            return await work
        finally:
            wall, cpu = (now - then for now, then in zip(_now(), before, strict=True))
            self._spent[name] += wall
            self._away[0] += wall
            self._away[1] += cpu

    def _mark(self, turn: int, *, burst: bool) -> None:
        wall, cpu = (now - away for now, away in zip(_now(), self._away, strict=True))
        self.marks.append(Mark(turn, burst, {**self._spent, "own": wall, "cpu": cpu}))


Logs = Mapping[str, Log]
"""By agent."""


class Through:
    """A port passed through, so that some of its calls can be watched."""

    def __init__(self, port: Any, logs: Logs) -> None:
        self._port, self._logs = port, logs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class Ledger(Through):
    """`between` is awaited before each burst; its time is nobody's."""

    def __init__(self, port: Any, logs: Logs, between: Callable[[AgentRef], Awaitable[None]]) -> None:
        super().__init__(port, logs)
        self._between = between

    async def open(self, ref: AgentRef) -> Any:
        """A burst begins."""
        log = self._logs[ref.place.agent_id]
        await log.apart("watching", self._between(ref))
        log.open()
        return await self._port.open(ref)

    async def begin(self, held: Any, key: Any, done: Any, intent: Any) -> Any:
        """T1."""
        log = self._logs[held.agent_id]
        if intent.opens:
            log.begin(intent.turn)
        return await log.part("T1", self._port.begin(held, key, done, intent))

    async def answer(self, held: Any, key: Any, answer: Any) -> Any:
        """T2."""
        return await self._logs[held.agent_id].part("T2", self._port.answer(held, key, answer))


class Model(Through):
    """Model calls are apart: their bodies hold the whole history."""

    async def call(self, request: Any, on_text: Any) -> Any:
        """A model call."""
        return await self._logs[request.agent_id].apart("model", self._call(request, on_text))

    async def _call(self, request: Any, on_text: Any) -> Any:
        """Looking at a request takes as long as it is: so it belongs to the call that is left out."""
        self._logs[request.agent_id].requests[int(request.key.split("/")[-2])] = prompt_chars(request)
        return await self._port.call(request, on_text)


class Runner(Through):
    """Commands are apart. `real` tells, of an agent's turn, whether its command runs in the sandbox, else it ends at
    once; in the turns that `speaks` tells they seem to have printed `output`."""

    def __init__(self, port: Any, logs: Logs, real: Callable[[str, int], bool], speaks: Callable[[int], bool]) -> None:
        super().__init__(port, logs)
        self._real, self._speaks = real, speaks
        self._none = QuickRunner(port, 0)

    async def exec(self, sandbox_id: str, request: ExecRequest) -> ExecStatus:
        """A command."""
        agent, turn = request.owner.agent_id, int(request.key.split("/")[-3])
        port = self._port if self._real(agent, turn) else self._none
        status: ExecStatus = await self._logs[agent].apart("command", port.exec(sandbox_id, request))
        said = f"{request.exec_id}\n{OUTPUT}"  # never the same bytes twice: those would be stored once
        return status.model_copy(update={"output": said}) if self._speaks(turn) else status


class Objects(Through):
    """Counts what is written."""

    def __init__(self, port: Any, logs: Logs) -> None:
        super().__init__(port, logs)
        self.written = 0

    async def put(self, tenant_id: str, data: bytes) -> BlobRef:
        """An object is written."""
        self.written += len(data)
        blob: BlobRef = await self._port.put(tenant_id, data)
        return blob


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
