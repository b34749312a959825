"""Which steps may start now. Two steps run side by side only when both say what paths they hold, and these differ."""

from collections.abc import Iterable
from graphlib import TopologicalSorter

from agents.contracts.run import PlanShape, StepShape
from agents.contracts.sandbox import WORKSPACE

_PATH = "path:"
_WHOLE: tuple[str, ...] = ()


def topological(shape: PlanShape) -> list[str]:
    """All step ids, each after those it depends on; otherwise in the plan's own order.

    Raises:
        CycleError: the plan has a circle (a plan that was accepted has none).
    """
    known = {step.id for step in shape.steps}
    sorter = TopologicalSorter({step.id: [d for d in step.depends_on if d in known] for step in shape.steps})
    sorter.prepare()
    place = {step.id: index for index, step in enumerate(shape.steps)}
    ordered: list[str] = []
    while sorter.is_active():
        layer = sorted(sorter.get_ready(), key=place.__getitem__)
        ordered += layer
        sorter.done(*layer)
    return ordered


def ready(shape: PlanShape, done: set[str], running: set[str], limit: int) -> list[str]:
    """The steps to start now, beside those `running`, so that at most `limit` run at once."""
    by_id = {step.id: step for step in shape.steps}
    beside = [by_id[step_id] for step_id in sorted(running) if step_id in by_id]
    free = limit - len(running)
    chosen: list[str] = []
    for step_id in topological(shape):
        step = by_id[step_id]
        waits = step_id in done or step_id in running or not set(step.depends_on) <= done
        if not waits and len(chosen) < free and all(compatible(step, other) for other in beside):
            chosen.append(step_id)
            beside.append(step)
    return chosen


def compatible(one: StepShape, other: StepShape) -> bool:
    """Whether two steps may run at the same time: both declare paths, no path holds another, and nothing else that
    they name is the same."""
    paths, others = _paths(one.resources), _paths(other.resources)
    if not paths or not others or any(_overlap(a, b) for a in paths for b in others):
        return False
    return not set(_rest(one.resources)) & set(_rest(other.resources))


def _paths(resources: Iterable[str]) -> list[tuple[str, ...]]:
    return [_parts(resource.removeprefix(_PATH)) for resource in resources if resource.startswith(_PATH)]


def _rest(resources: Iterable[str]) -> list[str]:
    return [resource.strip() for resource in resources if not resource.startswith(_PATH)]


def _parts(path: str) -> tuple[str, ...]:
    """A path's parts inside the workspace, up to the first wildcard; the whole workspace where that is not clear."""
    path = path.strip()
    if path == WORKSPACE or path.startswith(WORKSPACE + "/"):
        path = path.removeprefix(WORKSPACE)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        return _WHOLE
    wild = next((i for i, part in enumerate(parts) if set(part) & set("*?[{")), len(parts))
    return tuple(part.casefold() for part in parts[:wild])


def _overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]
