"""One task under faults: submitted, watched, hit; of a scripted play, in the right moment."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from temporalio.client import Client as Temporal

from agents.contracts.approval import Approval, ApprovalState, Decision
from agents.contracts.event import SandboxClaimed
from agents.contracts.task import TaskResult
from services.cli.connect import local
from services.client import Client
from tests.fault.jobs import Job
from tests.fault.play import MARKS, MIDDLE, SLOW, Play
from tests.fault.tally import Tally
from tests.fault.watch import Watch
from tests.support.stack import Stack, processes_of

WITHIN_S = 150.0
PATIENCE_S = 120.0
"""How long a client waits for an API that is being started again."""
_POLL_S = 0.01


class Kill(NamedTuple):
    """What was killed, and when by both clocks. `up` is when a stack that was killed whole was up again."""

    what: str
    at: datetime
    then: float
    up: float | None = None


def poll(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Look again and again until something is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(_POLL_S)


def shoot(what: str, pids: Sequence[int]) -> Kill:
    """SIGKILL, all in the same moment."""
    kill = Kill(what, datetime.now(UTC), time.monotonic())
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return kill


class Case:
    """A task that is watched from its submission on."""

    def __init__(self, stack: Stack, tally: Tally, job: Job) -> None:
        self.stack = stack
        self.tally = tally
        self.job = job
        self.kills: list[Kill] = []
        access = local(stack.data)
        assert access, "no stack runs"
        self._asked_from = stack.data.log("replay").stat().st_size
        self._asked_to: int | None = None
        self.client: Client = access.client(patience_s=PATIENCE_S)
        tally.lost += 1
        self.id = self.client.submit(job.spec(self.client)).id
        self.watch = Watch(access, self.id)

    def close(self) -> None:
        """Leave the task to itself."""
        self.watch.close()
        self.client.close()

    @property
    def ended(self) -> bool:
        """Whether the last event has come."""
        return self.watch.ended

    def note_the_end(self) -> None:
        """What the replay engine says from here on is not for this task."""
        self._asked_to = self._asked_to or self.stack.data.log("replay").stat().st_size

    def replays(self) -> list[str]:
        """What the replay engine said while this task ran."""
        said = self.stack.data.log("replay").read_bytes()[self._asked_from : self._asked_to]
        return said.decode("utf-8", "replace").splitlines()

    def marks(self, result: TaskResult) -> list[str]:
        """What its commands have left, where every command leaves one."""
        return []

    @property
    def expected_marks(self) -> tuple[str, ...]:
        """What they must leave, each once."""
        return ()


class PlayCase(Case):
    """A task that runs a `Play`. Everything that waits is bounded."""

    def __init__(self, stack: Stack, tally: Tally, play: Play) -> None:
        self.play = play
        super().__init__(stack, tally, play)

    @property
    def expected_marks(self) -> tuple[str, ...]:
        """Those of the play."""
        return self.play.marks

    def marks(self, result: TaskResult) -> list[str]:
        """The lines of the file that the executor kept, as a client downloads it (which compares the digest)."""
        saved = [artifact for artifact in result.artifacts if artifact.path == MARKS]
        if not saved:
            return []
        path = self.client.download(saved[0].id, self.stack.data.root.parent / f"{self.id}.txt")
        return path.read_text(encoding="utf-8").split()

    def runs(self, name: str) -> bool:
        """Whether a process is up, so that it can be killed."""
        return self.stack.running(name)

    # --- moments ------------------------------------------------------------------------------------------------------
    def until_middle(self) -> None:
        """Wait until the long command is in its middle."""
        self.watch.wait(lambda: self._workspace() is not None, WITHIN_S, "the workspace is there")
        workspace = self._workspace()
        assert workspace
        poll((workspace / MIDDLE).exists, WITHIN_S, "the command is in its middle")

    def until_commands(self, count: int) -> None:
        """Wait until so many commands have ended."""
        self.watch.wait(lambda: self._count("exec.exited") >= count, WITHIN_S, f"{count} commands have ended")

    def until_event(self, kind: str) -> None:
        """Wait until there is an event of a type."""
        self.watch.wait(lambda: self._count(kind) > 0, WITHIN_S, kind)

    def until_asked(self, count: int = 1) -> Approval:
        """Wait until the task has asked so many questions and an agent waits for one of them: that one."""
        self.watch.wait(lambda: self._count("approval.requested") >= count, WITHIN_S, f"{count} questions")
        poll(lambda: self._waits() is not None, WITHIN_S, "an agent waits for a decision")
        waits = self._waits()
        assert waits
        return waits

    def decide(self, approval: Approval, decision: Decision = "approve") -> None:
        """A person decides."""
        self.client.decide(approval.id, decision)

    def _waits(self) -> Approval | None:
        """The first question that nobody has decided, once an agent waits for it."""
        pending = self.client.approvals(self.id, [ApprovalState.PENDING]).data
        waiting = any(agent.waiting_for == "approval" for agent in self.client.get(self.id).agents)
        return min(pending, key=lambda a: (a.turn, a.call_index)) if pending and waiting else None

    def until_streaming(self) -> None:
        """Wait until the slow reply streams."""
        self.watch.wait(
            lambda: any(SLOW in delta.text for delta in self.watch.deltas), WITHIN_S, "the slow reply streams"
        )

    def marks_now(self) -> list[str]:
        """What the file of marks in the workspace holds at this moment."""
        workspace = self._workspace()
        assert workspace
        return (workspace / MARKS).read_text(encoding="utf-8").split()

    def _count(self, kind: str) -> int:
        return sum(seen.event.data.type == kind for seen in self.watch.seen)

    def _workspace(self) -> Path | None:
        """The folder of the task's workspace on this machine."""
        names = [s.event.data.sandbox_id for s in self.watch.seen if isinstance(s.event.data, SandboxClaimed)]
        return self.stack.data.sandboxes / "sandboxes" / names[0] / "workspace" if names else None

    # --- faults -------------------------------------------------------------------------------------------------------
    def kill(self, *names: str) -> None:
        """SIGKILL processes of the stack, all in the same moment."""
        self._hit(" and ".join(names), [self.stack.pid(name) for name in names])

    def kill_worker(self, pid: int) -> None:
        """SIGKILL the worker that `who_works` found."""
        self._hit("the worker", [pid])

    def who_works(self) -> int:
        """The process of the worker that has the executor's burst."""
        return asyncio.run(self._who_works())

    def kill_launcher(self) -> None:
        """SIGKILL the launcher, and start it again once everything died with it."""
        mark, launcher = self.stack.mark, self.stack.process
        assert launcher
        self._hit("launcher", [launcher.pid])
        launcher.wait()
        poll(lambda: not processes_of(mark, self.stack.data.root), 15, "everything died with the launcher")
        self.stack.start()
        self.kills[-1] = self.kills[-1]._replace(up=time.monotonic())

    def _hit(self, what: str, pids: Sequence[int]) -> None:
        self.kills.append(shoot(what, pids))
        self.tally.injected += len(pids)

    async def _who_works(self) -> int:
        settings = self.stack.settings("worker")
        client = await Temporal.connect(settings.temporal_address, namespace=settings.temporal_namespace)
        described = await client.get_workflow_handle(f"agent/{self.id}/0/executor/1.work/1").describe()
        (activity,) = described.raw_description.pending_activities
        pid = int(activity.last_worker_identity.partition("@")[0])
        assert pid in (self.stack.pid("worker-1"), self.stack.pid("worker-2"))
        return pid
