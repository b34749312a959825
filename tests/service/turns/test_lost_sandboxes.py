"""Whole tasks whose sandboxes vanish: they go on in restored ones, and their agents are told what is gone."""

import asyncio
import secrets
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select
from temporalio.client import Client

from agents.contracts.artifact import BlobRef
from agents.contracts.errors import ErrorCode, LonghaulError
from agents.contracts.model import ModelReply, ModelRequest
from agents.contracts.run import TaskRef
from agents.contracts.sandbox import SandboxInfo, SandboxSpec
from agents.contracts.task import InputFile, Limits, StopReason
from services.ids import new_id
from services.settings import Settings
from services.store import files, tables
from tests.support.lost import NOTICE, of_kind, shown, vanish
from tests.support.scripts import ScriptedModel, says
from tests.support.stack import Stack
from tests.support.team import Team, connect, finish, plan, review, working
from tests.support.turns import QUICK, Parts, new_task, until
from workflows.keeping import Cadence
from workflows.names import workspace_id

NAMESPACE = "test-" + secrets.token_hex(4)
EVERY_2 = replace(QUICK, snapshots=Cadence(turns=2))


@pytest.fixture
async def client(servers: Settings) -> Client:
    """A namespace of this module's own."""
    return await connect(servers, NAMESPACE)


def shell(command: str, timeout_s: int = 60) -> ModelReply:
    return says(("shell", {"command": command, "timeout_s": timeout_s}))


async def begun(team: Team, task: TaskRef, mark: str = "begun") -> None:
    """A command has left a mark in the workspace."""

    async def there() -> bool:
        try:
            found, _ = await team.parts.runner.list_files(workspace_id(task), 100)
        except LonghaulError:
            return False
        return mark in [file.path for file in found]

    await until(there, 40)


async def artifact(parts: Parts, task: TaskRef, path: str) -> bytes:
    """What a task has kept under this path."""
    query = select(tables.artifacts).where(tables.artifacts.c.task_id == task.task_id, tables.artifacts.c.path == path)
    async with parts.db.begin() as conn:
        row = (await conn.execute(query)).one()
    return await parts.objects.get(task.tenant_id, BlobRef(sha256=row.sha256, bytes=row.bytes))


@pytest.mark.timeout(120)
async def test_files_that_vanish_under_a_command_are_restored_and_the_task_completes(
    parts: Parts, stack: Stack, client: Client, tenant_id: str
) -> None:
    def looks(request: ModelRequest) -> ModelReply:
        text = shown(request)
        assert NOTICE in text
        assert "as it was after turn 2 of step only" in text
        assert "What your last turn with calls changed is gone" in text
        assert '"error_code":"EXEC_OUTCOME_UNKNOWN"' in text
        assert "SANDBOX_LOST" not in text
        assert "SANDBOX_NOT_FOUND" not in text
        return shell("cat log; echo 4 >> log")

    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("only"),
            "executor/1.only/1/1/m1": shell("echo 1 >> log"),
            "executor/1.only/1/2/m1": shell("echo 2 >> log"),
            "executor/1.only/1/3/m1": shell("echo 3 >> log; touch begun; sleep 60", 100),
            "executor/1.only/1/4/m1": looks,
            "executor/1.only/1/5/m1": says(("finish_step", {"summary": "done", "artifacts": ["log"]})),
            "reviewer/1.only/1/1/m1": review("approve"),
        }
    )
    async with working(parts, client, model, rules=EVERY_2) as team:
        task = await new_task(parts, tenant_id, Limits(), checks=["grep -c . log"])
        handle = await team.start(task)
        await begun(team, task)
        vanish(stack, workspace_id(task))
        assert (await asyncio.wait_for(handle.result(), 60)).stop_reason is StopReason.COMPLETED
        assert await artifact(parts, task, "log") == b"1\n2\n4\n"
        told = await team.events(task)
        [lost], [restored] = of_kind(told, "sandbox.lost"), of_kind(told, "sandbox.restored")
        assert lost.sandbox_id == restored.lost_id == workspace_id(task)
        assert restored.sandbox_id != lost.sandbox_id
        assert (restored.step, restored.round, restored.turn) == ("only", 1, 2)
        first = of_kind(told, "sandbox.snapshot")[0]
        assert (first.blob, first.turn) == (restored.blob, 2)
        assert first.added_bytes > 0
        assert len([m for m in of_kind(told, "message.sent") if m.kind == "notice"]) == 1
        assert of_kind(told, "exec.lost") == []
        assert {box.state for box in await team.sandboxes(task)} == {"lost", "gone"}
        assert await kept(parts, task) == 0  # what a sandbox would be restored from is not needed any more


async def kept(parts: Parts, task: TaskRef) -> int:
    query = select(tables.snapshots.c.id).where(tables.snapshots.c.task_id == task.task_id)
    async with parts.db.begin() as conn:
        return len((await conn.execute(query)).all())


@pytest.mark.timeout(120)
async def test_without_a_snapshot_the_uploads_are_unpacked_anew(
    parts: Parts, stack: Stack, client: Client, tenant_id: str
) -> None:
    blob, file_id = await parts.objects.put(tenant_id, b"given\n"), new_id("file")
    async with parts.db.begin() as conn:
        await files.add(conn, tenant_id, file_id=file_id, name="f", blob=blob)

    def looks(request: ModelRequest) -> ModelReply:
        assert "the uploaded files and nothing else (turn 0)" in shown(request)
        return shell("cat given; ls")

    def sees(request: ModelRequest) -> ModelReply:
        assert shown(request).count("given\ngiven\n") == 1  # the content, then the only name
        return says(("finish_step", {"summary": "done"}))

    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("only"),
            "executor/1.only/1/1/m1": shell("touch begun; rm given; sleep 60", 100),
            "executor/1.only/1/2/m1": looks,
            "executor/1.only/1/3/m1": sees,
            "reviewer/1.only/1/1/m1": review("approve"),
        }
    )
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(), files=[InputFile(path="given", file_id=file_id)])
        handle = await team.start(task)
        await begun(team, task)
        vanish(stack, workspace_id(task))
        end = await asyncio.wait_for(handle.result(), 60)
        assert end.stop_reason is StopReason.COMPLETED, end
        [restored] = of_kind(await team.events(task), "sandbox.restored")
        assert (restored.blob, restored.turn, restored.step) == (None, 0, None)


@pytest.mark.timeout(150)
async def test_agents_side_by_side_see_the_restored_workspace_once(
    parts: Parts, stack: Stack, client: Client, tenant_id: str
) -> None:
    noticed: list[str] = []

    def after(request: ModelRequest) -> ModelReply:
        assert shown(request).count(NOTICE) == 1
        noticed.append(request.coordinate)
        step = request.coordinate.split("/")[1].removeprefix("1.")
        return shell(f"mkdir -p {step}; echo again > {step}/f")

    lines: dict[str, Any] = {"planner/1.plan/1/1/m1": plan("one", "two"), "reviewer/1.final/1/1/m1": review("approve")}
    for step in ("one", "two"):
        lines |= {
            f"executor/1.{step}/1/1/m1": shell(
                f"mkdir -p {step}; echo first > {step}/f; touch begun-{step}; sleep 60", 99
            ),
            f"executor/1.{step}/1/2/m1": after,
            f"executor/1.{step}/1/3/m1": finish(),
            f"reviewer/1.{step}/1/1/m1": review("approve"),
        }
    model = ScriptedModel(lines)
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(), checks=["cat one/f two/f && test ! -e begun-one"])
        handle = await team.start(task)
        await asyncio.gather(begun(team, task, "begun-one"), begun(team, task, "begun-two"))
        vanish(stack, workspace_id(task))
        end = await asyncio.wait_for(handle.result(), 90)
        assert end.stop_reason is StopReason.COMPLETED, end
        told = await team.types(task)
        assert (told.count("sandbox.lost"), told.count("sandbox.restored")) == (1, 1)
        assert sorted(noticed) == ["executor/1.one/1/2/m1", "executor/1.two/1/2/m1"]
        workspaces = [box for box in await team.sandboxes(task) if box.purpose == "workspace"]
        assert sorted(box.fence for box in workspaces) == [1, 2]


@pytest.mark.timeout(120)
async def test_a_clean_copy_that_vanishes_is_made_again_as_the_review_began(
    parts: Parts, stack: Stack, client: Client, tenant_id: str
) -> None:
    def after(request: ModelRequest) -> ModelReply:
        assert "Your clean copy of the workspace was lost" in shown(request)
        return shell("cat f; ls")

    def judges(request: ModelRequest) -> ModelReply:
        assert "kept\nf\n" in shown(request)
        return review("approve")  # type: ignore[no-any-return]

    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("only"),
            "executor/1.only/1/1/m1": shell("echo kept > f"),
            "executor/1.only/1/2/m1": finish(),
            "reviewer/1.only/1/1/m1": shell("echo spoiled > f; touch more"),
            "reviewer/1.only/1/2/m1": after,
            "reviewer/1.only/1/3/m1": judges,
        }
    )
    waiting = asyncio.Event()

    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits())

        def spoiled(request: ModelRequest) -> ModelReply:
            waiting.set()
            return shell("touch begun; sleep 60", 99)

        model.say("reviewer/1.only/1/1/m1", spoiled)
        handle = await team.start(task)
        await asyncio.wait_for(waiting.wait(), 40)
        copy = next(box.id for box in await team.sandboxes(task) if box.purpose == "clean_copy")
        await asyncio.sleep(0.5)
        vanish(stack, copy)
        end = await asyncio.wait_for(handle.result(), 60)
        assert end.stop_reason is StopReason.COMPLETED, end
        [restored] = of_kind(await team.events(task), "sandbox.restored")
        assert restored.lost_id == copy
        assert restored.blob is not None


@pytest.mark.timeout(120)
async def test_a_workspace_that_vanishes_between_two_agents_is_restored(
    parts: Parts, stack: Stack, client: Client, tenant_id: str
) -> None:
    """Whoever needs it next (here the planner's successor, opening a round) has it made again."""
    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("only"),
            "executor/1.only/1/1/m1": shell("echo kept > f"),
            "executor/1.only/1/2/m1": finish(),
            "reviewer/1.only/1/1/m1": review("revise", "not enough"),
            "executor/1.only/2/1/m1": shell("cat f"),
            "executor/1.only/2/2/m1": finish(),
            "reviewer/1.only/2/1/m1": review("approve"),
        }
    )
    model.gate = asyncio.Event()
    model.gate.set()
    async with working(parts, client, model) as team:
        task = await new_task(parts, tenant_id, Limits(), checks=["test $(cat f) = kept"])
        handle = await team.start(task)

        async def reviewing() -> bool:
            return "review.started" in await team.types(task)

        def hold(request: ModelRequest) -> ModelReply:
            vanish(stack, workspace_id(task))
            return review("revise", "not enough")  # type: ignore[no-any-return]

        model.say("reviewer/1.only/1/1/m1", hold)
        await until(reviewing, 40)
        end = await asyncio.wait_for(handle.result(), 60)
        assert end.stop_reason is StopReason.COMPLETED, end
        [restored] = of_kind(await team.events(task), "sandbox.restored")
        assert (restored.round, restored.turn) == (1, 2)
        again = next(r for r in model.asked if r.coordinate == "executor/1.only/2/1/m1")
        assert NOTICE in shown(again)
        assert "No turn of yours is missing from it" in shown(again)


class Away:
    """A runner whose object store is away for a while: nothing can be made from a snapshot."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.away = True
        self.asked = 0

    async def create(self, spec: SandboxSpec) -> SandboxInfo:
        """Refused where it needs the store."""
        if spec.snapshot is not None and self.away:
            self.asked += 1
            raise LonghaulError(ErrorCode.OBJECTS_UNAVAILABLE, "the object store does not answer")
        made: SandboxInfo = await self._runner.create(spec)
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


@pytest.mark.timeout(150)
async def test_a_store_that_is_away_is_waited_for_and_never_gives_an_empty_workspace(
    parts: Parts, stack: Stack, client: Client, tenant_id: str
) -> None:
    model = ScriptedModel(
        {
            "planner/1.plan/1/1/m1": plan("only"),
            "executor/1.only/1/1/m1": shell("echo 1 >> log"),
            "executor/1.only/1/2/m1": shell("echo 2 >> log"),
            "executor/1.only/1/3/m1": shell("touch begun; sleep 60", 100),
            "executor/1.only/1/4/m1": finish(),
            "reviewer/1.only/1/1/m1": review("approve"),
        }
    )
    runner = Away(parts.runner)
    async with working(parts, client, model, rules=EVERY_2, runner=runner) as team:
        task = await new_task(parts, tenant_id, Limits(), checks=["test $(wc -l < log) = 2"])
        handle = await team.start(task)
        await begun(team, task)
        vanish(stack, workspace_id(task))

        async def waits() -> bool:
            return bool((await team.row(task)).waiting_for == "sandbox")

        await until(waits, 30)
        await until(lambda: runner.asked >= 2, 30)
        assert "sandbox.restored" not in await team.types(task)
        runner.away = False
        end = await asyncio.wait_for(handle.result(), 90)
        assert end.stop_reason is StopReason.COMPLETED, end
        told = await team.events(task)
        assert len(of_kind(told, "sandbox.restored")) == len(of_kind(told, "sandbox.lost")) == 1
        assert of_kind(told, "sandbox.restored")[0].turn == 2
        assert (await team.types(task)).count("agent.waiting") == 1
