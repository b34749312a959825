"""Snapshots between turns, and restoring by an attempt that dies at every moment: on real parts."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from agents.contracts.errors import ErrorCode, ErrorInfo, Fenced, LonghaulError
from agents.contracts.model import ModelReply, ModelRequest
from agents.contracts.run import BurstReason
from agents.contracts.sandbox import ReadFile
from services.objects.client import Bucket
from services.snapshots.s3 import S3Shelf
from services.store import checkpoints, tables
from services.store.lost_sandboxes import SqlSandboxes
from services.store.task_runs import SqlTasks
from tests.support.lost import NOTICE, boxes, claim, of_kind, shown, vanish
from tests.support.mortal import Killed, Life, Mortal
from tests.support.scripts import Line, ScriptedModel, says
from tests.support.stack import Stack
from tests.support.turns import QUICK, Parts, Scene, new_scene, until
from workflows.keeping import Cadence
from workflows.names import harness
from workflows.turns import Ports
from workflows.workspaces import Workspaces

FINISH = says(("finish_step", {"summary": "done"}))
READ = says(("read_file", {"path": "log"}))


def shell(command: str, **more: object) -> ModelReply:
    return says(("shell", {"command": command, **more}))


async def scene_of(parts: Parts, tenant_id: str, lines: Sequence[Line], every: int = 2) -> Scene:
    """An executor in a sandbox that has its row, whose files are kept so often."""
    scene = await new_scene(parts, tenant_id, ScriptedModel(list(lines)), sandbox=True)
    scene.rules = replace(QUICK, snapshots=Cadence(turns=every))
    await claim(parts, scene)
    return scene


async def snapshots(scene: Scene) -> list[Any]:
    return await scene.rows(tables.snapshots)


async def wanted(scene: Scene) -> set[str]:
    """The manifests that collection has to leave."""
    async with scene.parts.db.begin() as conn:
        return await checkpoints.manifests(conn, scene.ref.tenant_id)


# --- when ---------------------------------------------------------------------------------------------------------
async def test_files_are_kept_every_few_turns_that_may_have_changed_them(parts: Parts, tenant_id: str) -> None:
    work = [shell("echo 1 >> log"), READ, shell("echo 2 >> log"), READ, READ, shell("echo 3 >> log")]
    scene = await scene_of(parts, tenant_id, [*work, shell("echo 4 >> log"), READ, FINISH])
    assert (await scene.burst()).reason is BurstReason.FINISHED
    told = [e for e in await scene.events() if e.data.type == "sandbox.snapshot"]
    assert [event.turn for event in told] == [3, 7]
    assert [event.data.turn for event in told] == [3, 7]  # type: ignore[union-attr]
    [row] = await snapshots(scene)  # only the last
    assert await wanted(scene) == {row.manifest_sha256} == {told[-1].data.blob.sha256}  # type: ignore[union-attr]


async def test_what_does_not_change_files_is_not_counted_and_none_is_taken_of_a_busy_one(
    parts: Parts, tenant_id: str
) -> None:
    scene = await scene_of(parts, tenant_id, [READ, READ, READ, READ, READ, FINISH], every=1)
    await scene.burst()
    assert await snapshots(scene) == []
    work = [shell("echo 1 >> log"), shell("echo 2 >> log"), shell("touch stop; sleep 1"), READ, FINISH]
    busy = await scene_of(parts, tenant_id + "b", work, every=1)
    other = asyncio.create_task(busy.shell("touch ready; while ! test -e stop; do sleep 0.05; done"))

    async def ready() -> bool:
        return (await parts.runner.list_files(busy.sandbox_id or "", 9))[1] == 1

    await until(ready)
    begun = parts.clock.monotonic()
    assert (await busy.burst()).reason is BurstReason.FINISHED
    assert parts.clock.monotonic() - begun < 20  # nobody waited a minute for the busy one
    await other
    turns = [event.turn for event in await busy.events() if event.data.type == "sandbox.snapshot"]
    assert turns == [3]  # once it was still


async def test_the_count_goes_on_over_bursts(parts: Parts, tenant_id: str) -> None:
    work = [shell(f"echo {n} >> log") for n in range(1, 8)]
    scene = await scene_of(parts, tenant_id, [*work, FINISH], every=3)
    scene.rules = replace(scene.rules, turns=1)
    while (await scene.burst()).reason is BurstReason.LIMIT:
        pass
    told = [e.turn for e in await scene.events() if e.data.type == "sandbox.snapshot"]
    assert told == [3, 6]


async def test_none_is_taken_where_they_are_switched_off(parts: Parts, tenant_id: str) -> None:
    scene = await scene_of(parts, tenant_id, [shell("echo 1 >> log"), shell("echo 2 >> log"), FINISH], every=0)
    await scene.burst()
    assert await snapshots(scene) == []


async def test_a_second_attempt_at_the_same_turn_takes_none_again(parts: Parts, tenant_id: str) -> None:
    """The first dies when the files are kept and nothing is noted yet. What was kept then is what the second notes."""
    scene = await scene_of(parts, tenant_id, [shell("echo 1 >> log"), shell("echo 2 >> log"), FINISH])
    model = scene.ports.model
    assert isinstance(model, ScriptedModel)
    third = asyncio.Event()

    def held_up(request: ModelRequest) -> ModelReply:
        third.set()
        raise LonghaulError(ErrorCode.ENGINE_UNAVAILABLE, "away")

    model.say("1/3/m1", held_up)
    scene.rules = replace(scene.rules, engine_patience_s=60.0)
    life = Life()
    tasks, store = SqlTasks(parts.db, parts.clock), Mortal(SqlSandboxes(parts.db, parts.clock), Life(1), "store")
    safe = Workspaces(store, tasks, Mortal(parts.runner, life, "runner"), parts.objects, parts.clock)
    first = asyncio.create_task(scene.burst(safe=safe))
    await until(lambda: "after runner.snapshot" in life.where and third.is_set(), 30)
    first.cancel()
    await asyncio.wait({first})
    assert await snapshots(scene) == []
    shelf = S3Shelf(Bucket(parts.settings, connections=2), tenant_id)
    names = {part.name for part in shelf.names()}
    await scene.shell("echo other > other")
    model.say("1/3/m1", FINISH)
    assert (await scene.burst()).reason is BurstReason.FINISHED
    assert {part.name for part in shelf.names()} == names  # nothing was stored anew
    [row] = await snapshots(scene)
    assert f"manifests/{row.manifest_sha256}" in names
    assert (await scene.count())["sandbox.snapshot"] == 1


# --- restoring --------------------------------------------------------------------------------------------------------
LOST_IN = [
    shell("echo 1 >> log"),
    shell("echo 2 >> log"),
    shell("echo 3 >> log"),
    shell("cat log; echo 4 >> log"),
    FINISH,
]


async def lost(parts: Parts, stack: Stack, tenant_id: str) -> Scene:
    """A scene that has lost its sandbox after three turns, the first two of which are kept."""
    scene = await scene_of(parts, tenant_id, LOST_IN)
    scene.rules = replace(scene.rules, turns=3)
    assert (await scene.burst()).reason is BurstReason.LIMIT
    assert [row.turn for row in await snapshots(scene)] == [2]
    scene.rules = replace(scene.rules, turns=50)
    assert scene.sandbox_id
    vanish(stack, scene.sandbox_id)
    return scene


def mortal(scene: Scene, life: Life) -> Ports:
    """The scene's ports, where what keeps and restores may die around each of its calls."""
    parts = scene.parts
    safe = Workspaces(
        Mortal(SqlSandboxes(parts.db, parts.clock), life, "store"),
        Mortal(SqlTasks(parts.db, parts.clock), life, "tasks"),
        Mortal(parts.runner, life, "runner"),
        parts.objects,
        parts.clock,
    )
    return replace(scene.ports, safe=safe)


async def restored_once(scene: Scene) -> None:
    told = await scene.events()
    kinds = Counter(event.data.type for event in told)
    assert (kinds["sandbox.lost"], kinds["sandbox.restored"]) == (1, 1)
    [restored] = of_kind(told, "sandbox.restored")
    assert restored.turn == 2
    rows = await boxes(scene)
    assert [(state, fence) for _, state, fence in rows] == [("lost", 1), ("ready", 2)]
    model = scene.ports.model
    assert isinstance(model, ScriptedModel)
    fourth = [request for request in model.asked if request.key.endswith("/1/4/m1")]
    assert all(shown(request).count(NOTICE) == 1 for request in fourth)
    async with scene.parts.db.begin() as conn:
        kept = (await conn.execute(select(tables.tool_calls).where(tables.tool_calls.c.turn == 4))).all()
    [call] = [row for row in kept if row.agent_id == scene.ref.place.agent_id]
    assert call.result["content"] == "1\n2"
    files, _ = await scene.parts.runner.list_files(restored.sandbox_id, 9)
    assert [file.path for file in files] == ["log"]


@pytest.mark.timeout(300)
async def test_whoever_dies_while_restoring_it_is_restored_once(parts: Parts, stack: Stack, tenant_id: str) -> None:
    whole = Life()
    scene = await lost(parts, stack, tenant_id)
    assert (await scene.burst(**vars(mortal(scene, whole)))).reason is BurstReason.LIMIT
    assert (await scene.burst()).reason is BurstReason.FINISHED
    await restored_once(scene)
    assert whole.moments >= 8

    for moment in range(1, whole.moments + 1):
        scene = await lost(parts, stack, f"{tenant_id}n{moment}")
        life = Life(moment)
        with pytest.raises(Killed):
            await scene.burst(**vars(mortal(scene, life)))
        while (end := await scene.burst()).reason is BurstReason.LIMIT:
            pass
        assert end.reason is BurstReason.FINISHED, (life.where[-1], end)
        await restored_once(scene)


async def test_two_that_restore_at_once_make_one(parts: Parts, stack: Stack, tenant_id: str) -> None:
    scene = await lost(parts, stack, tenant_id)
    store = SqlSandboxes(parts.db, parts.clock)
    assert scene.sandbox_id
    why = ErrorInfo(code=ErrorCode.SANDBOX_NOT_FOUND, detail="gone")
    lost_id = scene.sandbox_id
    made = await asyncio.gather(*(parts.workspaces._again(scene.task, lost_id, why, None) for _ in range(4)))
    assert len({box.id for box in made}) == 1
    assert await store.current(scene.task, lost_id) == made[0]
    while (end := await scene.burst()).reason is BurstReason.LIMIT:
        pass
    assert end.reason is BurstReason.FINISHED
    await restored_once(scene)


async def test_an_attempt_in_the_lost_sandbox_is_fenced_out(parts: Parts, stack: Stack, tenant_id: str) -> None:
    """Another's activity has it restored while this attempt waits for its model: what that then says is not kept."""
    scene = await scene_of(parts, tenant_id, [shell("echo 1 >> log"), FINISH], every=1)
    model = scene.ports.model
    assert isinstance(model, ScriptedModel)
    model.gate = asyncio.Event()
    older = asyncio.create_task(scene.burst())
    await until(lambda: model.under_way == 1)
    assert scene.sandbox_id
    vanish(stack, scene.sandbox_id)
    files = await parts.workspaces.on(scene.task, scene.sandbox_id, lambda box: parts.runner.list_files(box.id, 9))
    assert files == ([], 0)
    model.gate.set()
    with pytest.raises(Fenced):
        await older
    assert (await scene.count())["model.completed"] == 0
    assert (await scene.burst()).reason is BurstReason.FINISHED
    assert (await scene.count())["sandbox.restored"] == 1


# --- damage -----------------------------------------------------------------------------------------------------------
async def damage(scene: Scene, row: Any) -> None:
    """The store gives other bytes back than were kept."""
    shelf = S3Shelf(Bucket(scene.parts.settings, connections=2), scene.ref.tenant_id)
    name = f"manifests/{row.manifest_sha256}"
    await asyncio.to_thread(shelf.delete, name)
    await asyncio.to_thread(shelf.put, name, b"not what was kept")


async def older_copy(scene: Scene) -> str:
    """A checkpoint from before the first turn, in the rows as a review leaves it."""
    sandbox_id = scene.sandbox_id or ""
    await scene.shell("echo before > log")
    kept = await scene.parts.workspaces._take(sandbox_id, "before", harness(scene.task))
    row = {
        "id": "snap_" + scene.ref.place.task_id,
        "tenant_id": scene.ref.tenant_id,
        "task_id": scene.task.task_id,
        "origin": sandbox_id,
        "checkpoint_id": "chk_1",
        "step_id": "s0",
        "round": 1,
        "turn": 5,
        "taken_at": kept.taken_at,
        "manifest_sha256": kept.snapshot.manifest.sha256,
        "manifest_bytes": kept.snapshot.manifest.bytes,
    }
    async with scene.parts.db.begin() as conn:
        await conn.execute(tables.snapshots.insert().values(row))
    return str(row["id"])


async def test_in_place_of_a_damaged_one_the_one_before_is_taken(parts: Parts, stack: Stack, tenant_id: str) -> None:
    scene = await scene_of(parts, tenant_id, LOST_IN)
    older = await older_copy(scene)
    scene.rules = replace(scene.rules, turns=3)
    assert (await scene.burst()).reason is BurstReason.LIMIT
    rows = {row.id: row for row in await snapshots(scene)}
    assert len(rows) == 2
    [newer] = [row for name, row in rows.items() if name != older]
    await damage(scene, newer)
    vanish(stack, scene.sandbox_id or "")
    assert (await scene.burst()).reason is BurstReason.LIMIT
    [restored] = of_kind(await scene.events(), "sandbox.restored")
    assert (restored.step, restored.turn, restored.lost_id) == ("s0", 5, scene.sandbox_id)
    assert restored.blob.sha256 == rows[older].manifest_sha256
    assert [(state, fence) for _, state, fence in await boxes(scene)] == [("lost", 1), ("lost", 2), ("ready", 3)]
    text = await parts.runner.read_file(restored.sandbox_id, ReadFile(path="log"))
    assert text.text == "before\n"
    assert (await scene.count())["sandbox.lost"] == 1


async def test_where_all_are_damaged_the_round_ends_by_a_code(parts: Parts, stack: Stack, tenant_id: str) -> None:
    scene = await lost(parts, stack, tenant_id)
    [row] = await snapshots(scene)
    await damage(scene, row)
    end = await scene.burst()
    assert end.reason is BurstReason.SANDBOX_LOST
    assert end.error is not None
    assert end.error.code is ErrorCode.SNAPSHOT_FAILED
    assert (await scene.count())["sandbox.restored"] == 0
