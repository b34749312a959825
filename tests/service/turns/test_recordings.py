"""Whole tasks out of the ledger into recordings: what was revised, answered badly, cancelled, or is under way."""

import asyncio
import secrets

import pytest
from temporalio.client import Client

from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.recorded import RecordedTask
from agents.contracts.recording import Recording
from agents.contracts.run import TaskRef
from agents.contracts.task import Limits, StopReason
from services.prompts import prompts
from services.recording import load
from services.recording.recorder import Recorder
from services.settings import Settings
from tests.support.scripts import ScriptedModel, says
from tests.support.team import connect, finish, plan, review, working
from tests.support.turns import Parts, new_task, until
from workflows.replay.against import against
from workflows.replay.transcript import shown

NAMESPACE = "test-" + secrets.token_hex(4)
TALK = says(text="let me think", finish="stop")
KEY = "sk-" + "abcd1234efgh5678ijkl"
BROKEN = LonghaulError(ErrorCode.REPLY_ABORTED, "cut off")


@pytest.fixture
async def client(servers: Settings) -> Client:
    """A namespace of this module's own."""
    return await connect(servers, NAMESPACE)


async def recorded(parts: Parts, task: TaskRef) -> tuple[Recording, RecordedTask]:
    """The recording of a task."""
    body = await Recorder(parts.db, parts.objects, prompts()).recording(task.tenant_id, task.task_id)
    recording = Recording.model_validate_json(body)
    assert recording.task is not None
    assert KEY not in body.decode()
    return recording, recording.task


async def test_what_was_revised_and_answered_badly(parts: Parts, client: Client, tenant_id: str) -> None:
    lines = {
        "planner/1.plan/1/1/m1": TALK,
        "planner/1.plan/1/1/m2": plan("only"),
        "executor/1.only/1/1/m1": says(("shell", {"command": f"echo API_KEY={KEY} > env; cat env"})),
        "executor/1.only/1/2/m1": BROKEN,
        "executor/1.only/1/2/m2": says(("shell", {"command": 7}), ("read_file", {"path": "none"})),
        "executor/1.only/1/3/m1": finish("first try"),
        "reviewer/1.only/1/1/m1": says(("shell", {"command": "cat env; yes | head -c 40000"})),
        "reviewer/1.only/1/2/m1": review("revise", "the greeting is missing"),
        "executor/1.only/2/1/m1": finish("second try"),
        "reviewer/1.only/2/1/m1": review("approve"),
    }
    model = ScriptedModel(lines)
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(), checks=["true"])
        assert (await (await team.start(task)).result()).stop_reason is StopReason.COMPLETED
        recording, kept = await recorded(parts, task)
    assert kept.notes == ()
    assert {entry.call for entry in recording.entries} == set(lines)
    asks = [ask.call for agent in kept.agents for one in agent.rounds for ask in one.asks]
    assert sorted(asks) == sorted(lines)
    reviews = next(agent.rounds for agent in kept.agents if agent.place.role == "reviewer")
    assert [one.brief is not None for one in reviews] == [True, True]
    assert reviews[0].brief != reviews[1].brief
    played = await against(recording, kept, prompts())
    assert (played.same, played.calls, played.notes) == (True, len(lines), ()), played
    # where nothing was redacted, the requests in the file are those that the model was sent
    layers = {ask.call: ask.layers for agent in kept.agents for one in agent.rounds for ask in one.asks}
    planner = [request for request in model.asked if request.coordinate.startswith("planner/")]
    assert len(planner) == 2
    assert all(shown(request).layers() == layers[request.coordinate] for request in planner)


async def test_a_task_under_way_and_then_cancelled(parts: Parts, client: Client, tenant_id: str) -> None:
    lines = {
        "planner/1.plan/1/1/m1": plan("only"),
        "executor/1.only/1/1/m1": says(("read_file", {"path": "a"})),
        "executor/1.only/1/2/m1": says(("shell", {"command": "sleep 60", "timeout_s": 100})),
    }
    model = ScriptedModel(lines)
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits())
        handle = await team.start(task)
        await until(lambda: len(model.asked) == 3, 30)
        await asyncio.sleep(0.5)
        for ended in (False, True):
            if ended:
                await team.cancel(task, handle)
                await handle.result()
            recording, kept = await recorded(parts, task)
            assert kept.status.ended is ended
            played = await against(recording, kept, prompts())
            assert (played.same, played.calls) == (True, 3), played
            assert kept.notes == ()


async def test_another_tenants_task_is_not_there(parts: Parts, tenant_id: str) -> None:
    task = await new_task(parts, tenant_id, Limits())
    with pytest.raises(LonghaulError, match="NOT_FOUND"):
        await recorded(parts, TaskRef(tenant_id=tenant_id + "x", task_id=task.task_id))


async def test_a_task_that_is_too_large_is_refused(parts: Parts, client: Client, tenant_id: str) -> None:
    words = says(("write_file", {"path": "a", "content": "x" * 100_000}))
    lines = {"planner/1.plan/1/1/m1": plan("only"), "reviewer/1.only/1/1/m1": review("approve")}
    lines |= {f"executor/1.only/1/{n}/m1": words for n in (1, 2)} | {"executor/1.only/1/3/m1": finish()}
    async with working(parts, client, ScriptedModel(lines)) as team:
        task = await new_task(parts, tenant_id, Limits())
        await (await team.start(task)).result()
    async with parts.db.begin() as conn:
        with pytest.raises(LonghaulError, match="RECORDING_TOO_LARGE"):
            await load.Loader(conn, parts.objects, tenant_id, task.task_id, max_bytes=200_000).load()
    async with parts.db.begin() as conn:
        await load.Loader(conn, parts.objects, tenant_id, task.task_id, max_bytes=300_000).load()
