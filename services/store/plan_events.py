"""The event of a plan: every step by id and title, cut until it fits a row."""

from typing import NamedTuple

from agents.contracts.event import PlanRevised, PlanStepLine, PlanSubmitted
from agents.contracts.plan import Plan
from services.store.spill import json_text
from services.store.tables import ROW_CAP_BYTES

PlanEvent = PlanSubmitted | PlanRevised


class _Cut(NamedTuple):
    """Characters of a title and of the notes, and whether dependencies are told."""

    title: int
    notes: int
    dependencies: bool


_CUTS = (_Cut(200, 2_000, True), _Cut(200, 500, False), _Cut(60, 500, False), _Cut(20, 200, False))
"""From all there is to what always fits."""


def plan_event(revision: int, plan: Plan) -> PlanEvent:
    """A plan as its event tells it."""
    events = [_event(revision, plan, cut) for cut in _CUTS]
    return next((event for event in events if len(json_text(event).encode()) <= ROW_CAP_BYTES), events[-1])


def _event(revision: int, plan: Plan, cut: _Cut) -> PlanEvent:
    lines = tuple(
        PlanStepLine(
            id=step.id,
            title=_short(step.title, cut.title),
            depends_on=tuple(step.depends_on) if cut.dependencies else (),
        )
        for step in plan.steps
    )
    kind = PlanSubmitted if revision == 1 else PlanRevised
    return kind(revision=revision, steps=lines, notes=_short(plan.notes, cut.notes), cut=cut is not _CUTS[0])


def _short(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 1] + "…"
