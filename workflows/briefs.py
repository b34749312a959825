"""What an agent is told at its start, from what the task has so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agents.contracts.ids import FINAL_STEP, Role
from agents.contracts.plan import PlanStep
from agents.contracts.run import AgentRef
from agents.contracts.sandbox import FileEntry
from agents.contracts.task import CheckResult
from agents.contracts.trajectory import Brief, StepReport
from workflows.task_ports import Material

LISTING_MAX = 200
"""How many files of the workspace an agent is told of at its start."""


@dataclass(frozen=True)
class Scene:
    """What is true of the sandbox at this moment."""

    sandbox_id: str
    sandbox_fence: int
    listing: Sequence[FileEntry] = ()
    listing_total: int = 0
    checks: tuple[CheckResult, ...] = ()
    findings: tuple[str, ...] = field(default=())


def write_brief(ref: AgentRef, material: Material, scene: Scene) -> Brief:
    """The brief of one agent: a planner knows the goal, an executor its step and what it builds on, a reviewer what it
    reviews."""
    plan = material.plan.plan if material.plan else None
    step = next((s for s in plan.steps if s.id == ref.place.step), None) if plan else None
    return Brief(
        tenant_id=ref.tenant_id,
        place=ref.place,
        goal=material.goal,
        instruction_sha256=material.instruction_sha256,
        tier=material.tier,
        recording=material.recording,
        task_checks=material.checks,
        limits=material.limits,
        listing=tuple(scene.listing),
        listing_total=scene.listing_total,
        plan=None if ref.place.role is Role.PLANNER else plan,
        step=step,
        reports=_reports(ref, material, step),
        checks=scene.checks,
        findings=scene.findings,
        sandbox_id=scene.sandbox_id,
        sandbox_fence=scene.sandbox_fence,
        tools=material.tools,
        network=material.network,
        template=material.template,
    )


def _reports(ref: AgentRef, material: Material, step: PlanStep | None) -> tuple[StepReport, ...]:
    known = material.reports
    if ref.place.role is Role.EXECUTOR and step is not None:
        return tuple(known[d] for d in step.depends_on if d in known)
    if ref.place.role is Role.REVIEWER and ref.place.step != FINAL_STEP:
        return tuple(known[s] for s in [ref.place.step] if s in known)
    return tuple(known.values())
