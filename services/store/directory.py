"""Who there is to write to in a task: ``planner``, a step's id (its executor), ``reviewer:STEP``, ``person``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.ids import FINAL_STEP, PLAN_STEP, Place, Role
from agents.contracts.message import PERSON, name_of
from services.store.tables import agents, steps, tasks
from workflows.records import Addressee

_AT_WORK = "It is read before the next turn."
_WAITS = "It is at work and waits; this wakes it."
_UNBORN = "That agent has not begun; it reads this when it does."
_FINISHED = "That agent has handed in and is not at work; it reads this only if it is called upon again."
_TO_PERSON = "A person may read it at any time; nothing waits for that."


@dataclass(frozen=True)
class Entry:
    """An agent that there is, or that the plan foresees. `state` is None before its birth."""

    place: Place
    agent_id: str
    state: str | None = None

    @property
    def name(self) -> str:
        """What it is written to by."""
        return name_of(self.place)

    @property
    def at_work(self) -> bool:
        """Whether its round is under way."""
        return self.state in ("running", "waiting")

    def addressee(self) -> Addressee:
        """It as the recipient of a message."""
        note = {None: _UNBORN, "running": _AT_WORK, "waiting": _WAITS}.get(self.state, _FINISHED)
        return Addressee(self.name, self.agent_id, note, can_answer=self.at_work)


PERSON_ADDRESSEE = Addressee(PERSON, None, _TO_PERSON, can_answer=True)


class Directory:
    """The entries of one task at this moment, in the order of the plan."""

    def __init__(self, entries: Sequence[Entry], finished_steps: frozenset[str]) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._finished_steps = finished_steps

    def find(self, to: str, sender: Place | None) -> Addressee:
        """The one of this name. ``reviewer`` is the reviewer of the sender's own step, once that is done of the whole;
        for a person the only one at work, else that of the whole.

        Raises:
            LonghaulError: ``UNKNOWN_RECIPIENT``, with the names there are.
        """
        if to == PERSON and sender is not None:
            return PERSON_ADDRESSEE
        entry = self._reviewer(sender) if to == Role.REVIEWER else self._entries.get(to) or self._by_id(to)
        if entry is None or (sender is not None and entry.place == sender):
            raise self._unknown(to, sender)
        return entry.addressee()

    def at_work(self) -> Addressee:
        """Who a message without a name goes to: the only agent at work; between two, the one that is next.

        Raises:
            LonghaulError: ``UNKNOWN_RECIPIENT`` where several are at work.
        """
        working = [entry for entry in self._entries.values() if entry.at_work]
        if len(working) > 1:
            names = ", ".join(entry.name for entry in working)
            raise LonghaulError(ErrorCode.UNKNOWN_RECIPIENT, f"several are at work; say to which of them: {names}")
        return (working[0] if working else self._next()).addressee()

    def _next(self) -> Entry:
        entries = list(self._entries.values())
        coming = [
            entry
            for entry in entries
            if entry.place.role is Role.EXECUTOR and entry.place.step not in self._finished_steps
        ]
        return (coming or entries[-1:])[0]

    def _reviewer(self, sender: Place | None) -> Entry | None:
        reviewers = [entry for entry in self._entries.values() if entry.place.role is Role.REVIEWER]
        step = sender.step if sender and sender.step not in self._finished_steps else None
        own = [entry for entry in reviewers if entry.place.step == step]
        working = [r for r in reviewers if r.at_work] if sender is None else []
        if len(working) > 1:
            return None
        return next(iter(own or working or reviewers[-1:]), None)

    def _by_id(self, agent_id: str) -> Entry | None:
        return next((entry for entry in self._entries.values() if entry.agent_id == agent_id), None)

    def _unknown(self, to: str, sender: Place | None) -> LonghaulError:
        names = [name for name, entry in self._entries.items() if entry.place != sender]
        known = ", ".join(names if sender is None else [*names, PERSON])
        own = sender is not None and to in (name_of(sender), sender.agent_id)
        what = "that is you" if own else f"there is nobody called {to!r:.80}"
        return LonghaulError(ErrorCode.UNKNOWN_RECIPIENT, f"{what}; there are: {known}")


async def read_directory(conn: AsyncConnection, tenant_id: str, task_id: str) -> Directory:
    """The directory of a task that is there."""
    task = (
        await conn.execute(
            select(tasks.c.epoch, tasks.c.plan_revision).where(tasks.c.tenant_id == tenant_id, tasks.c.id == task_id)
        )
    ).one()
    of_task = (agents.c.tenant_id == tenant_id, agents.c.task_id == task_id, agents.c.epoch == task.epoch)
    found = (await conn.execute(select(agents).where(*of_task).order_by(agents.c.revision))).all()
    born = {(Role(row.role), row.step, row.revision): row for row in found}
    planned = (
        await conn.execute(
            select(steps.c.step_id, steps.c.state)
            .where(
                steps.c.tenant_id == tenant_id,
                steps.c.task_id == task_id,
                steps.c.epoch == task.epoch,
                steps.c.revision == task.plan_revision,
            )
            .order_by(steps.c.position)
        )
    ).all()
    done = frozenset(step.step_id for step in planned if step.state == "completed")

    def entry(role: Role, step: str) -> Entry:
        """The agent of the present plan; of a step that an earlier plan finished, the one that did."""
        revision = 1 if role is Role.PLANNER else task.plan_revision
        row: Row[Any] | None = born.get((role, step, revision))
        if row is None and step in done:
            row = next((r for (was, s, _), r in reversed(born.items()) if (was, s) == (role, step)), None)
        place = Place(
            task_id=task_id, epoch=task.epoch, role=role, step=step, revision=row.revision if row else revision
        )
        return Entry(place, place.agent_id, row.state if row else None)

    names = [step.step_id for step in planned]
    whole = [FINAL_STEP] if len(names) > 1 or (Role.REVIEWER, FINAL_STEP, task.plan_revision) in born else []
    entries = [
        entry(Role.PLANNER, PLAN_STEP),
        *(entry(Role.EXECUTOR, step) for step in names),
        *(entry(Role.REVIEWER, step) for step in [*names, *whole]),
    ]
    return Directory(entries, done)
