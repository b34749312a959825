"""Whether the host of the sandboxes can do what a task asks for."""

import asyncio
import time
from typing import Protocol

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.network import NetworkPolicy
from agents.contracts.sandbox import DEFAULT_TEMPLATE, Capabilities, SandboxLimits

CACHE_S = 10.0
_PATIENCE_S = 3.0


class HasCapabilities(Protocol):
    """The part of the runner's port that is needed here."""

    async def capabilities(self) -> Capabilities:
        """What the host can do; raises ``RUNNER_UNAVAILABLE``."""
        ...


class LimitChecks:
    """Compares a task's limits with the runner's capabilities, asked for at most every `CACHE_S`."""

    def __init__(self, runner: HasCapabilities) -> None:
        self._runner = runner
        self._known: Capabilities | None = None
        self._until = 0.0

    async def check(self, asked: SandboxLimits, network: NetworkPolicy) -> None:
        """Refuse a limit that would not hold, and a network that cannot be had.

        Raises:
            LonghaulError: ``CAPABILITY_MISSING``; ``RUNNER_UNAVAILABLE`` where nobody can say whether it can be had.
        """
        wanted = [] if asked.best_effort else sorted(asked.model_dump(exclude={"best_effort"}, exclude_none=True))
        if not wanted and not network.allow:
            return
        can = await self._capabilities()
        if network.allow and not can.network:
            raise LonghaulError(
                ErrorCode.CAPABILITY_MISSING,
                f"sandboxes of this host ({can.backend}) have no network; leave network.allow out",
            )
        if lacking := [name for name in wanted if name not in can.limits]:
            raise LonghaulError(
                ErrorCode.CAPABILITY_MISSING,
                f"this host cannot enforce sandbox limits: {', '.join(lacking)} ({can.detail or can.backend}); leave "
                "them out, or set sandbox.best_effort to run without them",
            )

    async def check_template(self, name: str) -> None:
        """Refuse a template that is not built. `default` is whatever comes with an installation.

        Raises:
            LonghaulError: ``TEMPLATE_NOT_FOUND``, with those that there are; ``RUNNER_UNAVAILABLE``.
        """
        if name == DEFAULT_TEMPLATE:
            return
        if name not in (can := await self._capabilities()).templates:
            known = ", ".join(can.templates) or "none"
            raise LonghaulError(
                ErrorCode.TEMPLATE_NOT_FOUND, f"the sandboxes' host has no template {name}; it has: {known}"
            )

    async def _capabilities(self) -> Capabilities:
        now = time.monotonic()
        if self._known is None or now >= self._until:
            self._known = await self._ask()
            self._until = now + CACHE_S
        return self._known

    async def _ask(self) -> Capabilities:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._runner.capabilities()
        except TimeoutError:
            detail = "the runner of sandboxes does not say which limits hold; try again"
            raise LonghaulError(ErrorCode.RUNNER_UNAVAILABLE, detail, retry_after_s=2) from None
