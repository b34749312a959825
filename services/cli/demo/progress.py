"""What a demo's end must tell of: which of its tasks still run, and who else uses the stack that it started."""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from agents.contracts.task import TaskStatus
from services.cli import follow
from services.cli.connect import Access
from services.cli.demo.own_stack import guests
from services.client import ClientError
from services.stack.program import runnable

_UNFINISHED = [status for status in TaskStatus if not status.ended]


@dataclass
class Progress:
    """The tasks by their demos' names. `own` is when our own stack was started, None on another's. `ended`, and whether
    `others` work on our stack (by a task that was submitted meanwhile, or as a guest) are known after `look`."""

    tasks: dict[str, str] = field(default_factory=dict)
    own: datetime | None = None
    ended: set[str] = field(default_factory=set)
    others: bool = False

    def look(self, access: Access) -> None:
        """Ask the API; where it does not answer any more, all tasks count as unfinished and nobody else's runs."""
        self.others = self.own is not None and access.data is not None and guests(access.data)
        with suppress(ClientError), access.quiet_client(patience_s=1.0) as client:
            mine, running = set(self.tasks.values()), client.list(_UNFINISHED, limit=200).data
            self.ended = mine - {task.id for task in running}
            if self.own is not None:
                self.others |= any(task.created_at > self.own and task.id not in mine for task in running)

    def unfinished(self) -> list[str]:
        """The demo's own tasks that go on, or rest."""
        return [task for task in self.tasks.values() if task not in self.ended]


LEFT = "The stack stays up, because others work on it. Stop it with:  longhaul down"


def interrupted(progress: Progress) -> str:
    """What was interrupted, and how it can go on."""
    tasks = progress.unfinished()
    if not progress.tasks:
        return "\nInterrupted before a task was submitted; nothing goes on."
    if not tasks:
        one = len(progress.tasks) == 1
        return f"\nInterrupted. {'The task had ended; its' if one else 'All tasks had ended; their'} data stays."
    if progress.own is None or progress.others:
        return "".join(follow.interrupted(task) for task in tasks)
    rests = "the task rests" if len(tasks) == 1 else "its tasks rest"
    lines = [f"\nInterrupted. The stack of this demo is stopped, and {rests} with it."]
    for task in tasks:
        lines.append(f"  let it go on:  longhaul up, then longhaul watch {task}")
        lines.append(f"  end it:        longhaul up, then longhaul cancel {task}")
    return runnable("\n".join(lines))
