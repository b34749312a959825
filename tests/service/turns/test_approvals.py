"""Calls that wait for a person, on real parts: in order, once, bound to their arguments, whatever dies meanwhile."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import update

from agents.contracts.approval import ApprovalState
from agents.contracts.run import BurstReason
from agents.contracts.task import Limits
from services.store import tables
from services.store.approvals import expire_due
from tests.service.turns.test_crashes import mortal, settled
from tests.support.approvals import TOOLBOX, asked, decide
from tests.support.mortal import Killed, Life
from tests.support.scripts import Line, ScriptedModel, says
from tests.support.turns import Parts, Scene, new_scene

FINISH = says(("finish_step", {"summary": "done"}))
ASK: dict[str, str] = {"shell": "ask"}


def shell(command: str) -> tuple[str, dict[str, object]]:
    return ("shell", {"command": command})


async def settle(scene: Scene, decision: Any, note: str | None = None) -> None:
    """Decide everything that waits."""
    for approval in await asked(scene.parts.db, scene.ref.tenant_id):
        if approval.state is ApprovalState.PENDING:
            await decide(scene.parts.db, approval, scene.ref.tenant_id, decision, note)


async def test_write_ask_write_keeps_its_order(parts: Parts, tenant_id: str) -> None:
    script: list[Line] = [
        says(("write_file", {"path": "a", "content": "1"}), shell("cat a >> log"), shell("ls")),
        FINISH,
    ]
    scene = await new_scene(parts, tenant_id, ScriptedModel(script), sandbox=True, tools=ASK)
    await scene.set_task(status="running")
    assert (await scene.burst()).reason is BurstReason.NEEDS_APPROVAL
    first, second = await asked(parts.db, tenant_id)
    assert (first.tool, first.arguments, first.kind) == ("shell", '{"command": "cat a >> log"}', "call")
    told = await scene.types()
    assert told[-5:] == ["approval.requested"] * 2 + ["tool.completed", "agent.waiting", "task.status"]
    task, agent = await scene.row(tables.tasks), await scene.row(tables.agents)
    assert (task.status, task.waiting_for) == (agent.state, agent.waiting_for) == ("waiting", "approval")
    assert await scene.shell("cat a; ls") == "1a\n"  # the write ran, the commands did not

    # rule 11: nothing decided, so the same answer and nothing new
    assert (await scene.burst()).reason is BurstReason.NEEDS_APPROVAL
    assert await scene.types() == told

    await decide(parts.db, first, tenant_id, "approve")
    assert (await scene.burst()).reason is BurstReason.NEEDS_APPROVAL
    assert await scene.shell("cat log") == "1"
    assert (await scene.row(tables.agents)).state == "waiting"
    await decide(parts.db, second, tenant_id, "deny", "look at it yourself")
    assert (await scene.burst()).reason is BurstReason.FINISHED
    results = [call.result for call in await scene.rows(tables.tool_calls)]
    assert [r.get("error_code") for r in results] == [None, None, "APPROVAL_DENIED", None]
    assert "look at it yourself" in results[2]["content"]
    count = await scene.count()
    assert (count["approval.requested"], count["approval.decided"], count["tool.completed"]) == (2, 2, 3)
    assert (count["model.called"], count["exec.exited"]) == (2, 1)
    await settled(scene)


async def test_an_expiry_is_told_as_such(parts: Parts, tenant_id: str) -> None:
    scene = await new_scene(
        parts,
        tenant_id,
        ScriptedModel([says(shell("ls")), FINISH]),
        sandbox=True,
        tools=ASK,
        limits=Limits(approval_s=1),
    )
    assert (await scene.burst()).reason is BurstReason.NEEDS_APPROVAL
    [approval] = await asked(parts.db, tenant_id)
    assert (approval.expires_at - approval.requested_at).total_seconds() == 1
    await asyncio.sleep(1.1)
    await expire_due(parts.db)
    assert (await scene.burst()).reason is BurstReason.FINISHED
    call = (await scene.rows(tables.tool_calls))[0]
    assert call.result["error_code"] == "APPROVAL_EXPIRED"
    count = await scene.count()
    assert (count["approval.expired"], count["approval.decided"]) == (1, 0)


async def test_an_approval_is_not_reused_for_changed_arguments(parts: Parts, tenant_id: str) -> None:
    scene = await new_scene(parts, tenant_id, ScriptedModel([says(shell("ls")), FINISH]), sandbox=True, tools=ASK)
    await scene.burst()
    [approval] = await asked(parts.db, tenant_id)
    await decide(parts.db, approval, tenant_id, "approve")
    async with parts.db.begin() as conn:  # as if it had been given for other arguments
        other = update(tables.approvals).where(tables.approvals.c.id == approval.id)
        await conn.execute(other.values(arguments_sha256="0" * 64))
    assert (await scene.burst()).reason is BurstReason.NEEDS_APPROVAL
    again = (await asked(parts.db, tenant_id))[-1]
    assert (again.state, again.arguments_sha256) == (ApprovalState.PENDING, approval.arguments_sha256)
    assert (await scene.count())["exec.exited"] == 0
    await decide(parts.db, again, tenant_id, "approve")
    assert (await scene.burst()).reason is BurstReason.FINISHED


async def test_other_steps_go_on_meanwhile(parts: Parts, tenant_id: str) -> None:
    scene = await new_scene(parts, tenant_id, ScriptedModel([says(shell("ls")), FINISH]), sandbox=True, tools=ASK)
    other = await new_scene(parts, tenant_id, ScriptedModel([FINISH]), task=scene.task, step="s2")
    await scene.set_task(status="running")
    assert (await scene.burst()).reason is BurstReason.NEEDS_APPROVAL
    assert (await scene.row(tables.tasks)).status == "running"  # somebody works
    assert (await other.burst()).reason is BurstReason.FINISHED
    assert (await scene.burst()).reason is BurstReason.NEEDS_APPROVAL
    assert (await scene.row(tables.tasks)).status == "waiting"
    await settle(scene, "approve")
    assert (await scene.burst()).reason is BurstReason.FINISHED
    assert (await scene.row(tables.tasks)).status == "running"


@pytest.mark.parametrize("tool", ["launch", "order"])
async def test_15_an_unknown_outcome_of_what_cannot_be_undone_is_asked(parts: Parts, tenant_id: str, tool: str) -> None:
    """Where the worker died between the effect and its record a person says what to do; what can be undone is told."""
    model = ScriptedModel([says((tool, {"name": "one"})), FINISH])
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    scene.toolbox = TOOLBOX
    await scene.burst()
    await settle(scene, "approve")
    life = Life()
    with pytest.raises(Killed):
        await scene.burst(**vars(mortal(scene.ports, KilledAfter(life, "after runner.exec"))))
    end = await scene.burst()
    assert await scene.shell("cat launched") == "one\n"
    if tool == "order":
        assert end.reason is BurstReason.FINISHED
        assert (await scene.rows(tables.tool_calls))[0].result["error_code"] == "EXEC_OUTCOME_UNKNOWN"
        return
    assert end.reason is BurstReason.NEEDS_APPROVAL
    question = (await asked(parts.db, tenant_id))[-1]
    assert (question.kind, question.state) == ("unknown_outcome", ApprovalState.PENDING)
    await decide(parts.db, question, tenant_id, "approve")
    assert (await scene.burst()).reason is BurstReason.FINISHED
    assert await scene.shell("cat launched") == "one\none\n"  # as the person said: once more, and once only
    assert len(await asked(parts.db, tenant_id)) == 2


class KilledAfter(Life):
    """Dies at a moment of this name."""

    def __init__(self, life: Life, name: str) -> None:
        super().__init__()
        self._name = name

    def moment(self, where: str) -> None:
        """One more."""
        super().moment(where)
        if where == self._name:
            raise Killed(where)


def script(folder: str) -> dict[str, Line]:
    """A batch that ran in part before it asked, a lone call that asks, one that cannot be undone."""
    return {
        "1/1/m1": says(
            ("write_file", {"path": f"{folder}/a", "content": "a"}),
            shell(f"echo ran >> {folder}/log"),
            ("edit_file", {"path": f"{folder}/a", "old": "a", "new": "b"}),
        ),
        "1/2/m1": says(shell(f"echo alone >> {folder}/log")),
        "1/3/m1": says(("launch", {"name": folder})),
        "1/4/m1": FINISH,
    }


async def one_life(parts: Parts, tenant_id: str, sandbox: Scene, until: int | None) -> tuple[Scene, Life]:
    """A new agent in the shared sandbox; an attempt dies at moment `until`; a person says yes, and looks before saying
    that a launch is to be repeated."""
    folder, life = f"work{until or 0}", Life(until)
    scene = await new_scene(
        parts,
        f"{tenant_id}n{until or 0}",
        ScriptedModel(script(folder)),
        in_sandbox=sandbox.sandbox_id,
        tools={"shell": "ask"},
    )
    scene.toolbox = TOOLBOX
    ports = vars(mortal(scene.ports, life))
    for _ in range(12):
        try:
            end = await scene.burst(**ports)
        except Killed:
            ports = {}
            continue
        if end.reason is BurstReason.FINISHED:
            return scene, life
        assert end.reason is BurstReason.NEEDS_APPROVAL
        for approval in await asked(parts.db, scene.ref.tenant_id):
            if approval.state is ApprovalState.PENDING:
                is_there = folder in (await sandbox.shell("cat launched")).split()
                no = approval.kind == "unknown_outcome" and is_there
                await decide(parts.db, approval, scene.ref.tenant_id, "deny" if no else "approve")
    raise AssertionError("it does not end")


@pytest.mark.timeout(600)
async def test_killed_at_every_moment_nothing_is_lost_or_done_twice(parts: Parts, tenant_id: str) -> None:
    sandbox = await new_scene(parts, tenant_id, ScriptedModel([]), sandbox=True)
    await sandbox.shell("touch launched")
    scene, whole = await one_life(parts, tenant_id, sandbox, None)
    assert await sandbox.shell("cat work0/log work0/a launched") == "ran\nalone\nbwork0\n"
    assert (await scene.count())["approval.requested"] == 3
    assert whole.moments > 50
    side_by_side = asyncio.Semaphore(4)

    async def dies(until: int) -> None:
        async with side_by_side:
            scene, life = await one_life(parts, tenant_id, sandbox, until)
            where, folder = f"killed {life.where[-1]} ({until})", f"work{until}"
            assert await sandbox.shell(f"cat {folder}/log {folder}/a") == "ran\nalone\nb", where
            assert (await sandbox.shell("cat launched")).split().count(folder) == 1, where
            count = await scene.count()  # asserts that there are no gaps
            assert (count["turn.completed"], count["tool.called"], count["agent.finished"]) == (4, 6, 1), where
            kinds = [approval.kind for approval in await asked(parts.db, scene.ref.tenant_id)]
            assert kinds[:3] == ["call"] * 3, where
            assert kinds[3:] in ([], ["unknown_outcome"]), where
            assert count["approval.requested"] == count["approval.decided"] == len(kinds), where
            await settled(scene)

    async with asyncio.TaskGroup() as group:
        for moment in range(1, whole.moments + 1):
            group.create_task(dies(moment))
