"""A round from its first turn to its end."""

from agents.contracts.run import BurstReason
from services.store import tables
from tests.support.scripts import ScriptedModel, says
from tests.support.turns import Parts, new_scene


async def test_a_round_runs_to_its_end(parts: Parts, tenant_id: str) -> None:
    model = ScriptedModel(
        [
            says(("shell", {"command": "echo one > a.txt; cat a.txt"})),
            says(("read_file", {"path": "a.txt"}), ("read_file", {"path": "missing.txt"})),
            says(("save_artifact", {"path": "a.txt"})),
            says(("finish_step", {"summary": "done", "artifacts": ["a.txt"]})),
        ]
    )
    scene = await new_scene(parts, tenant_id, model, sandbox=True)
    end = await scene.burst()
    assert end.reason is BurstReason.FINISHED, end
    assert end.turns == 4
    told = await scene.types()
    assert sorted(told[14:16]) == ["tool.completed", "tool.failed"]  # reads overlap: whichever is there first
    assert [*told[:14], "tool.completed", "tool.failed", *told[16:]] == [
        "agent.started",
        *["turn.started", "model.called", "model.completed", "tool.called"],
        *["exec.started", "exec.exited", "tool.completed", "turn.completed"],
        *["turn.started", "model.called", "model.completed", "tool.called", "tool.called"],
        *["tool.completed", "tool.failed", "turn.completed"],
        *["turn.started", "model.called", "model.completed", "tool.called"],
        *["artifact.created", "tool.completed", "turn.completed"],
        *["turn.started", "model.called", "model.completed", "tool.called"],
        *["tool.completed", "turn.completed", "agent.finished"],
    ]
    task = await scene.row(tables.tasks)
    assert (task.turns, task.prompt_tokens, task.completion_tokens) == (4, 40, 20)
    assert (task.reserved_tokens, task.reserved_cost_micro) == (0, 0)
    artifact = await scene.row(tables.artifacts)
    assert (artifact.path, artifact.bytes) == ("a.txt", 4)
    assert (await scene.row(tables.agents)).state == "finished"
    assert (await scene.burst()).reason is BurstReason.FINISHED  # the answer is given again
    assert len(model.asked) == 4
