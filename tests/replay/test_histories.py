"""Recorded histories are replayed: workflow code that would decide otherwise is found before it meets a task."""

import importlib
import inspect
import json
import pkgutil
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

import workflows
from services.worker.run import WORKFLOWS, sandbox
from workflows.sizes import SizeGuard

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


def replayer() -> Replayer:
    """As a worker runs workflows."""
    return Replayer(
        workflows=list(WORKFLOWS),
        data_converter=pydantic_data_converter,
        workflow_runner=sandbox(),
        interceptors=[SizeGuard()],
    )


def read(path: Path) -> WorkflowHistory:
    """A history with the id it was recorded under."""
    return WorkflowHistory.from_json(path.stem, path.read_text())


PATHS = {"whole", "replan", "outage", "cancelled", "approval", "asked", "continued", "continuation"}
"""What has to be recorded of every workflow, besides what is its own."""
OWN = {"task-deadline"}


def defined() -> set[str]:
    """The names of all workflows that the package defines."""
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(workflows.__path__, "workflows.")]
    found = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    return {one.__temporal_workflow_definition.name for one in found if hasattr(one, "__temporal_workflow_definition")}


def kind(path: Path) -> str:
    """The name of a history's workflow."""
    return read(path).events[0].workflow_execution_started_event_attributes.workflow_type.name


def test_every_workflow_is_recorded_on_every_path() -> None:
    recorded = {(kind(path), path.stem.partition("-")[2]) for path in HISTORIES}
    assert not {(name, path) for name in defined() for path in PATHS} - recorded
    assert {path.stem for path in HISTORIES} >= OWN
    assert defined() == {workflow.__name__ for workflow in WORKFLOWS} == {"TaskWorkflow", "AgentWorkflow"}


@pytest.mark.parametrize(
    ("path", "event"),
    [
        ("task-continued", EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW),
        ("agent-continued", EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW),
        ("agent-approval", EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED),
        ("agent-outage", EventType.EVENT_TYPE_TIMER_FIRED),
        ("agent-cancelled", EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED),
        ("task-cancelled", EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED),
        ("task-deadline", EventType.EVENT_TYPE_TIMER_FIRED),
    ],
)
def test_a_history_is_of_what_its_name_says(path: str, event: EventType.ValueType) -> None:
    [found] = [one for one in HISTORIES if one.stem == path]
    assert event in {one.event_type for one in read(found).events}


def test_a_history_of_a_revision_has_a_second_round() -> None:
    [whole] = [path for path in HISTORIES if path.stem == "task-whole"]
    children = [e.start_child_workflow_execution_initiated_event_attributes.workflow_id for e in read(whole).events]
    assert any(child.endswith("/executor/1.one/2") for child in children)


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_history_replays(path: Path) -> None:
    await replayer().replay_workflow(read(path))


@pytest.mark.parametrize(("path", "reason"), [("agent-approval", "needs_approval"), ("agent-asked", "asked")])
def test_a_burst_ended_as_the_name_says_and_the_agent_went_on(path: str, reason: str) -> None:
    [found] = [one for one in HISTORIES if one.stem == path]
    results = [
        json.loads(payload.data)
        for event in read(found).events
        for payload in event.activity_task_completed_event_attributes.result.payloads
    ]
    assert [result["reason"] for result in results if "reason" in result] == [reason, "finished"]


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
