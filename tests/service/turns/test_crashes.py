"""The attempt is killed at every moment around every call of a port: the next one always comes to the same end."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from agents.contracts.ids import Role
from agents.contracts.run import BurstReason
from services.store import tables
from services.worker.tools import SandboxBench
from tests.support.mortal import Killed, Life, Mortal
from tests.support.scripts import Line, ScriptedModel, place_in, says
from tests.support.turns import Parts, Scene, new_scene
from workflows.turns import Ports

BIG = "x" * 40


def script(folder: str) -> dict[str, Line]:
    """Every kind of turn: an exec that must run once, an edit that fails when done twice, a batch, a bad reply, a large
    result, an artifact."""
    return {
        "1/1/m1": says(
            ("shell", {"command": f"mkdir -p {folder} && echo ran >> {folder}/log && echo old > {folder}/f"})
        ),
        "1/2/m1": says(("edit_file", {"path": f"{folder}/f", "old": "old", "new": "new"})),
        "1/3/m1": says(
            ("read_file", {"path": f"{folder}/f"}),
            ("read_file", {"path": f"{folder}/log"}),
            ("shell", {"command": f"echo batch >> {folder}/log"}),
        ),
        "1/4/m1": says(text="no call here", finish="stop"),
        "1/4/m2": says(("shell", {"command": f"yes {BIG} | head -n 1000"})),
        "1/5/m1": says(("finish_step", {"summary": "done", "artifacts": [f"{folder}/f"]})),
    }


def mortal(ports: Ports, life: Life) -> Ports:
    """The same ports, each able to die."""
    runner, bench = Mortal(ports.runner, life, "runner"), ports.bench
    assert isinstance(bench, SandboxBench)
    return replace(
        ports,
        ledger=Mortal(ports.ledger, life, "ledger"),
        model=Mortal(ports.model, life, "model"),
        runner=runner,
        bench=SandboxBench(runner, bench._objects, ports.clock, bench._post),
    )


async def snapshot(scene: Scene, folder: str) -> dict[str, object]:
    """What must be the same however often the attempt died."""
    calls = await scene.rows(tables.tool_calls)
    told = await scene.types()
    own = [kind for kind in told if not kind.startswith(("agent.started", "message"))]
    return {
        "results": [(c.key.split("/", 1)[1], c.result and c.result.get("content"), bool(c.result_blob)) for c in calls],
        "turns": [(t.round, t.turn, t.failed, t.ended_at is not None) for t in await scene.rows(tables.turns)],
        "replies": [(m.k, m.bad is None, m.answered_at is not None) for m in await scene.rows(tables.model_calls)],
        "events": Counter(own),
        "log": await scene.shell(f"cat {folder}/log {folder}/f"),
        "artifacts": len(await scene.rows(tables.artifacts)),
    }


async def settled(scene: Scene) -> None:
    """Nothing stays reserved."""
    task = await scene.row(tables.tasks)
    assert (task.reserved_tokens, task.reserved_cost_micro) == (0, 0)
    assert all(r.settled_at is not None for r in await scene.rows(tables.budget_reservations))


async def one_life(
    parts: Parts, tenant_id: str, sandbox: Scene, until: int | None
) -> tuple[Scene, Life, ScriptedModel]:
    """A new agent in the shared sandbox; its first attempt dies at moment `until`, the next one ends the round."""
    folder = f"work{until or 0}"
    model = ScriptedModel(script(folder))
    own_tenant = f"{tenant_id}n{until or 0}"
    scene = await new_scene(parts, own_tenant, model, role=Role.EXECUTOR, in_sandbox=sandbox.sandbox_id)
    life = Life(until)
    try:
        end = await scene.burst(**vars(mortal(scene.ports, life)))
    except Killed:
        end = await scene.burst()
    assert end.reason is BurstReason.FINISHED, end
    return scene, life, model


@pytest.mark.timeout(600)
async def test_killed_at_every_moment(parts: Parts, tenant_id: str) -> None:
    """For every moment: same results, every command and edit once, no gaps in the events, at most one more ask."""
    sandbox = await new_scene(parts, tenant_id, ScriptedModel([]), sandbox=True)
    scene, whole, model = await one_life(parts, tenant_id, sandbox, None)
    expected = await snapshot(scene, "work0")
    assert expected["log"] == "ran\nbatch\nnew\n"
    await settled(scene)
    asked = len(model.asked)
    assert whole.moments > 50
    side_by_side = asyncio.Semaphore(4)

    async def dies(until: int) -> None:
        async with side_by_side:
            scene, life, model = await one_life(parts, tenant_id, sandbox, until)
            found = await snapshot(scene, f"work{until}")
            text = str(found).replace(f"work{until}/", "work0/").replace(scene.ref.place.task_id, "")
            want = str(expected).replace(scene.ref.place.task_id, "")
            assert text == want, f"killed {life.where[-1]} ({until})"
            assert len(model.asked) <= asked + 1, life.where[-1]
            again = Counter(place_in(request) for request in model.asked)
            for place, times in again.items():
                prompts = {tuple(m.content for m in r.messages) for r in model.asked if place_in(r) == place}
                assert len(prompts) == 1, f"{place} was asked {times} times in different words"
            await settled(scene)

    async with asyncio.TaskGroup() as group:
        for moment in range(1, whole.moments + 1):
            group.create_task(dies(moment))
