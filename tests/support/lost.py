"""Sandboxes that are lost: their folder goes away under whoever works in it."""

import secrets
from collections.abc import Sequence
from typing import Any

from agents.contracts.event import Event
from agents.contracts.model import ModelRequest
from services.store import tables
from services.store.task_runs import SqlTasks
from tests.support.stack import Stack
from tests.support.turns import Parts, Scene

NOTICE = "was lost by a fault of its host and has been restored"


def vanish(stack: Stack, sandbox_id: str) -> None:
    """As where a host's disk is gone: the runner finds nothing of it any more."""
    top = stack.context().data.sandboxes
    (top / "sandboxes" / sandbox_id).rename(top / f"vanished-{secrets.token_hex(4)}")


def shown(request: ModelRequest) -> str:
    """All that a model is shown."""
    return "\n".join(message.content for message in request.messages)


def of_kind(told: Sequence[Event], kind: str) -> list[Any]:
    """The data of all events of a type."""
    return [event.data for event in told if event.data.type == kind]


async def claim(parts: Parts, scene: Scene) -> None:
    """Give the scene's sandbox its row, as a task's own activity does."""
    assert scene.sandbox_id
    tasks = SqlTasks(parts.db, parts.clock)
    await tasks.expect(scene.task, scene.sandbox_id, "workspace")
    await tasks.claim(scene.task, await parts.runner.info(scene.sandbox_id))


async def boxes(scene: Scene) -> list[tuple[str, str, int]]:
    """The scene's sandboxes as the rows have them, in the order of their fences: id, state, fence."""
    rows = await scene.rows(tables.sandboxes)
    return sorted(((row.id, row.state, row.fence) for row in rows), key=lambda row: row[2])
