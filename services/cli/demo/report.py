"""What `longhaul demo --json` prints."""

from collections.abc import Iterable

from pydantic import BaseModel

from agents.contracts.task import StopReason, TaskResult, TaskStatus


class DemoArtifact(BaseModel):
    """A kept file whose digest was checked by downloading it."""

    path: str
    sha256: str
    bytes: int


class DemoTask(BaseModel):
    """One task of the demo."""

    id: str
    name: str
    status: TaskStatus
    stop_reason: StopReason
    turns: int
    artifacts: list[DemoArtifact]


class DemoReport(BaseModel):
    """All tasks in the order of their names, and what the whole command took, with the stack where it started one."""

    tasks: list[DemoTask]
    seconds: float


def report(results: Iterable[tuple[str, TaskResult]], seconds: float) -> DemoReport:
    """From names and results."""
    return DemoReport(tasks=[_task(name, result) for name, result in results], seconds=round(seconds, 3))


def _task(name: str, result: TaskResult) -> DemoTask:
    kept = [DemoArtifact(path=a.path, sha256=a.sha256, bytes=a.bytes) for a in result.artifacts]
    return DemoTask(
        id=result.id,
        name=name,
        status=result.status,
        stop_reason=result.stop_reason,
        turns=result.turns,
        artifacts=kept,
    )
