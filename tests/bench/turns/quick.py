"""Ports that cost nothing or are timed; everything else is real."""

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from agents.contracts.model import ModelReply, ModelRequest
from agents.contracts.sandbox import ExecRequest, ExecState, ExecStatus
from services.worker.tools import SandboxBench
from tests.support.scripts import says
from tests.support.turns import Parts, Scene, new_scene
from workflows.turns import BurstRules, Ports

RULES = BurstRules(max_tokens=1_000, turns=1_000, own_s=600.0)


class QuickModel:
    """An engine that answers at once: a command for `turns` turns, then the end."""

    def __init__(self, turns: int) -> None:
        self._turns = turns

    def estimate_cost_micro(self, prompt_tokens: int, completion_tokens: int) -> int:
        """Free."""
        return 0

    async def call(self, request: ModelRequest, on_text: Callable[[str], Awaitable[None]]) -> ModelReply:
        """The next command, never the same twice."""
        turn = int(request.key.split("/")[-2])
        if turn > self._turns:
            return says(("finish_step", {"summary": "done"}))
        return says(("shell", {"command": f"true {turn}"}))


class QuickRunner:
    """A runner whose commands end at once, with `size` bytes of output."""

    def __init__(self, runner: Any, size: int) -> None:
        self._runner = runner
        self._size = size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    async def exec(self, sandbox_id: str, request: ExecRequest) -> ExecStatus:
        """No command is run."""
        return ExecStatus(
            exec_id=request.exec_id,
            state=ExecState.EXITED,
            started=True,
            exit_code=0,
            reason="exited",
            output=(request.exec_id + " ") * (self._size // 38),
            started_at=datetime.now(UTC),
        )


class Timed:
    """A port whose calls are timed."""

    def __init__(self, port: Any, spent: dict[str, float], names: dict[str, str]) -> None:
        self._port, self._spent, self._names = port, spent, names

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if name not in self._names:
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return await method(*args, **kwargs)
            finally:
                self._spent[self._names[name]] += time.perf_counter() - begun

        return call


def quick(parts: Parts, turns: int, size: int) -> Ports:
    """Ports whose engine and runner cost nothing; the ledger, S3 and NATS are real."""
    runner = QuickRunner(parts.runner, size)
    bench = SandboxBench(runner, parts.objects, parts.clock, parts.post)
    return replace(parts.ports(QuickModel(turns)), runner=runner, bench=bench)


async def scenes(parts: Parts, count: int) -> list[Scene]:
    """Agents of as many tasks; the sandbox is never used."""
    tenant = "t" + secrets.token_hex(6)
    first = await new_scene(parts, tenant, QuickModel(0), sandbox=True)
    return [await new_scene(parts, tenant, QuickModel(0), in_sandbox=first.sandbox_id) for _ in range(count)]
