"""Keeping an executor's workspace every few turns, between two of them and while its model is asked, so that it costs
the turn little: the next calls wait for a snapshot that is under way, which they would at the sandbox's host as well.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from agents.contracts.ids import Role
from agents.contracts.sandbox import Owner
from agents.contracts.trajectory import Turn
from agents.tools.registry import Toolbox
from workflows.ports import Kept, Safekeeping
from workflows.records import Held, Opened


@dataclass(frozen=True)
class Cadence:
    """After how many turns that may have changed files these are kept (0: never), and how long calls wait for it."""

    turns: int = 10
    wait_s: float = 30.0


EVERY_TEN = Cadence()


class Keeping:
    """The snapshots of one attempt."""

    def __init__(self, safe: Safekeeping, held: Held, opened: Opened, toolbox: Toolbox, cadence: Cadence) -> None:
        self._safe = safe
        self._held = held
        self._sandbox_id = opened.brief.sandbox_id
        self._toolbox = toolbox
        self._cadence = cadence
        self._kept_at = opened.kept_at if held.place.role is Role.EXECUTOR and cadence.turns else None
        self._changes = 0
        self._under_way: asyncio.Task[Kept] | None = None
        self._waited = False

    def seen(self, turns: Iterable[Turn]) -> None:
        """Count complete turns that may have changed files which no snapshot has."""
        if self._kept_at is not None:
            self._changes += sum(turn.inputs.at >= self._kept_at and self._changed(turn) for turn in turns)

    def _changed(self, turn: Turn) -> bool:
        calls = turn.reply.tool_calls if turn.reply else ()
        tools = [self._toolbox.tools.get(call.name) for call in calls]
        return any(tool is not None and tool.contract.changes_files for tool in tools)

    def start(self, owner: Owner, opened: Turn) -> None:
        """A turn is open and none of its calls runs: where it is due, begin to keep what there is."""
        due = self._kept_at is not None and self._changes >= self._cadence.turns
        if due and self._under_way is None and self._sandbox_id is not None:
            at, last = opened.inputs.at, opened.turn - 1
            self._under_way = asyncio.ensure_future(self._safe.keep(self._held, self._sandbox_id, owner, last, at))
            self._under_way.add_done_callback(lambda done: self._ended(done, at))
            self._waited = False

    def _ended(self, done: "asyncio.Task[Kept]", at: datetime) -> None:
        """A busy sandbox is tried again at the next turn, any other hindrance as many turns later."""
        if not done.cancelled() and done.exception() is None and done.result() != "busy":
            self._changes = 0
            self._kept_at = at if done.result() == "kept" else self._kept_at

    async def settle(self) -> None:
        """Calls are about to run: wait for the snapshot that is under way, but not for ever.

        Raises:
            LonghaulError: the sandbox is lost; `Fenced`.
        """
        if self._under_way is None:
            return
        await asyncio.wait({self._under_way}, timeout=0.0 if self._waited else self._cadence.wait_s)
        self._waited = True
        if self._under_way.done():
            done, self._under_way = self._under_way, None
            done.result()

    async def close(self) -> None:
        """Nobody waits any longer; its host brings a snapshot that has begun to its end."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.wait({self._under_way})
