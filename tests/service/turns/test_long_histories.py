"""A task whose history gets long goes on in a new one, and nothing of it shows."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from agents.contracts.task import Limits, StopReason
from tests.support.scripts import ScriptedModel
from tests.support.team import Handle, finish, impatient_server, plan, review, working
from tests.support.turns import Parts, new_task

LONG = 60
"""Events after which the server of this test suggests a new history; a real one does after 4,096."""

AFTER = {"b": {"depends_on": ["a"]}, "c": {"depends_on": ["b"]}, "d": {"depends_on": ["b"]}}
LINES = {
    "planner/1.plan/1/1/m1": plan("a", "b", "c", **AFTER),
    "executor/1.a/1/1/m1": finish("a"),
    "reviewer/1.a/1/1/m1": review("approve"),
    "executor/1.b/1/1/m1": finish("b"),
    "reviewer/1.b/1/1/m1": review("revise", "b is not enough"),
    "executor/1.b/2/1/m1": finish("b again"),
    "reviewer/1.b/2/1/m1": review("approve"),
    "executor/1.c/1/1/m1": finish("c"),
    "reviewer/1.c/1/1/m1": review("replan", "d instead of c"),
    "planner/1.plan/2/1/m1": plan("a", "b", "d", **AFTER),
    "executor/2.d/1/1/m1": finish("d"),
    "reviewer/2.d/1/1/m1": review("approve"),
    "reviewer/2.final/1/1/m1": review("revise", "d, once more"),
    "executor/2.d/2/1/m1": finish("d again"),
    "reviewer/2.final/2/1/m1": review("approve"),
}


@pytest.fixture
async def impatient() -> AsyncIterator[Client]:
    """A server that finds a history long after a few events."""
    async with impatient_server(LONG) as client:
        yield client


async def test_a_long_task_goes_on_in_new_histories(parts: Parts, impatient: Client, tenant_id: str) -> None:
    model = ScriptedModel(dict(LINES))
    async with working(parts, impatient, model) as team:
        task = await new_task(parts, tenant_id, Limits(), checks=["true"])
        handle = await team.start(task)
        assert (await handle.result()).stop_reason is StopReason.COMPLETED
        asked = Counter(request.coordinate for request in model.asked)
        assert asked == dict.fromkeys(LINES, 1)
        told = Counter(await team.types(task))
        assert (told["task.started"], told["plan.submitted"], told["plan.revised"]) == (1, 1, 1)
        assert (told["step.started"], told["step.completed"], told["sandbox.claimed"]) == (6, 4, 1 + 7)
        lengths = await histories(impatient, handle)
        assert len(lengths) > 2
        assert max(lengths) < 3 * LONG


async def histories(client: Client, handle: Handle) -> list[int]:
    """How many events each run of a workflow had."""
    lengths, run_id = [], handle.first_execution_run_id
    while run_id:
        history = await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()
        lengths.append(len(history.events))
        last = history.events[-1].workflow_execution_continued_as_new_event_attributes
        run_id = last.new_execution_run_id
    return lengths
