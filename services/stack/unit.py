"""One process of the stack as data: how to start it, how to know that it is ready, how to stop it."""

import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from services.stack.spawn import Owner


def _nothing_more() -> Mapping[str, str]:
    return {}


async def _at_once(pid: int) -> bool:
    return True


class NotReady(Exception):
    """What `Unit.ready` raises where it knows more than that the process is not ready: the text says why."""


@dataclass(frozen=True)
class Unit:
    """`ready` is asked again and again while the process lives, with its number. `env_now` is asked before a start."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    ready: Callable[[int], Awaitable[bool]] = _at_once
    env_now: Callable[[], Mapping[str, str]] = _nothing_more
    owner: Owner | None = None
    pass_fds: tuple[int, ...] = ()
    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 12.0
    ready_within_s: float = 60.0
    tags: frozenset[str] = field(default_factory=frozenset)
