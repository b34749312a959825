"""A plan: a directed acyclic graph of steps."""

import json
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Literal

from pydantic import Field

from agents.contracts.base import Edge, Wire
from agents.contracts.ids import FINAL_STEP, PLAN_STEP, StepId

MAX_STEPS = 50
SHAPE_MAX_BYTES = 24 * 1024
"""What ids, dependencies and resources of all steps may weigh: they cross the orchestrator, which takes 32 KiB."""
Tier = Literal["auto", "fast", "full", "replay"]
"""The tiers a user may name. `replay` plays recorded model replies and never improvises."""

Line = Annotated[str, Field(min_length=1, max_length=2_000)]


class PlanStep(Edge):
    """One item of a plan. `resources` such as ``path:src/app`` name what the step must hold; two steps run side by
    side only when both declare paths and the paths are disjoint."""

    id: StepId
    title: Annotated[str, Field(min_length=1, max_length=200)]
    instructions: Annotated[str, Field(min_length=1, max_length=8_000)]
    acceptance: Annotated[list[Line], Field(min_length=1, max_length=20)]
    depends_on: Annotated[list[StepId], Field(max_length=MAX_STEPS)] = []
    resources: Annotated[list[Line], Field(max_length=20)] = []
    tier: Literal["fast", "full"] | None = None


class Plan(Edge):
    """What the planner submits; the arguments of `submit_plan`."""

    steps: Annotated[list[PlanStep], Field(min_length=1, max_length=MAX_STEPS)]
    notes: Annotated[str, Field(max_length=8_000)] = ""


class StoredPlan(Wire):
    """A plan as a task keeps it; `revision` counts from 1."""

    version: int = 1
    revision: int
    plan: Plan


def plan_problems(plan: Plan) -> list[str]:
    """What is wrong with a plan beyond its types, in words its author can act on; empty when it is sound."""
    ids = [step.id for step in plan.steps]
    problems = [f"step id {i!r} is used twice" for i in sorted({i for i in ids if ids.count(i) > 1})]
    problems += [f"step id {i!r} is reserved" for i in ids if i in (PLAN_STEP, FINAL_STEP)]
    for step in plan.steps:
        problems += [f"step {step.id!r} depends on {d!r}, which is not a step" for d in step.depends_on if d not in ids]
    size = _shape_bytes(plan)
    if size > SHAPE_MAX_BYTES:
        problems.append(
            f"ids, depends_on and resources of all steps weigh {size} bytes together, at most {SHAPE_MAX_BYTES}:"
            " shorten ids and resources, name only direct dependencies"
        )
    if not problems:
        try:
            TopologicalSorter({s.id: s.depends_on for s in plan.steps}).prepare()
        except CycleError as cycle:
            problems.append("these steps depend on each other in a circle: " + " -> ".join(cycle.args[1]))
    return problems


def _shape_bytes(plan: Plan) -> int:
    parts = [[step.id, *step.depends_on, *step.resources] for step in plan.steps]
    return len(json.dumps(parts, ensure_ascii=False).encode("utf-8", "replace"))
