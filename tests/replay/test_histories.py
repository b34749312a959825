"""Recorded histories are replayed: workflow code that would decide otherwise is found before it meets a task."""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from services.worker.run import sandbox
from workflows.agent import AgentWorkflow
from workflows.sizes import SizeGuard
from workflows.task import TaskWorkflow

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def replayer() -> Replayer:
    """As a worker runs workflows."""
    return Replayer(
        workflows=[TaskWorkflow, AgentWorkflow],
        data_converter=pydantic_data_converter,
        workflow_runner=sandbox(),
        interceptors=[SizeGuard()],
    )


def read(path: Path) -> WorkflowHistory:
    """A history with the id it was recorded under."""
    return WorkflowHistory.from_json(path.stem, path.read_text())


def test_there_are_histories() -> None:
    names = {path.stem for path in HISTORIES}
    assert {"task-whole", "task-replan", "task-outage", "task-cancelled", "task-deadline", "agent-whole"} <= names


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_history_replays(path: Path) -> None:
    await replayer().replay_workflow(read(path))


async def test_a_changed_decision_is_noticed() -> None:
    [path] = [path for path in HISTORIES if path.stem == "task-whole"]
    text = path.read_text().replace('"prepare_workspace"', '"prepare_something"')
    with pytest.raises(NondeterminismError):
        await replayer().replay_workflow(WorkflowHistory.from_json(path.stem, text))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_nothing_of_a_model_or_a_tool_crosses_temporal(path: Path) -> None:
    payloads = [
        payload
        for event in read(path).events
        for payload in (
            *event.activity_task_scheduled_event_attributes.input.payloads,
            *event.activity_task_completed_event_attributes.result.payloads,
            *event.start_child_workflow_execution_initiated_event_attributes.input.payloads,
        )
    ]
    assert all(len(payload.data) < 2_048 for payload in payloads)
