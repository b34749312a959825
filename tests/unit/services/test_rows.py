"""What goes into a row fits it, however much an agent says."""

import json
from typing import Any

import pytest

from agents.contracts.event import PlanRevised, ReviewSubmitted
from agents.contracts.plan import SHAPE_MAX_BYTES, Plan, PlanStep, plan_problems
from agents.contracts.trajectory import StepReport
from agents.tools.control import HAND_IN_MAX_BYTES, too_heavy
from agents.tools.finish_step import FinishStep
from agents.tools.submit_review import SubmitReview
from services.store.plan_events import plan_event
from services.store.spill import json_text
from services.store.tables import ROW_CAP_BYTES


def plan(title: str, *, steps: int = 50, notes: str = "", linked: bool = True) -> Plan:
    ids = [f"{n:02d}" + "x" * 30 for n in range(steps)]
    depends = [ids[:n] if linked and n < 20 else ids[:1] if n else [] for n in range(steps)]
    return Plan(
        steps=[
            PlanStep(id=id_, title=title, instructions="Do.", acceptance=["done"], depends_on=needs)
            for id_, needs in zip(ids, depends, strict=True)
        ],
        notes=notes,
    )


@pytest.mark.parametrize("title", ["t" * 200, "ä" * 200, "\U0001f600" * 200, "\x01" * 200])
@pytest.mark.parametrize("notes", ["", "n" * 8_000, "\U0001f600" * 8_000])
def test_the_event_of_any_plan_fits_a_row(title: str, notes: str) -> None:
    longest = plan(title, notes=notes)
    assert plan_problems(longest) == []
    event = plan_event(2, longest)
    assert isinstance(event, PlanRevised)
    assert len(json_text(event).encode()) <= ROW_CAP_BYTES
    assert event.cut
    assert [line.id for line in event.steps] == [step.id for step in longest.steps]


def test_a_plan_of_usual_length_is_told_whole() -> None:
    event = plan_event(1, plan("Look at it", steps=8, notes="n" * 2_000))
    assert not event.cut
    assert event.steps[7].depends_on
    assert event.notes == "n" * 2_000


def test_a_plan_of_many_links_is_a_plan() -> None:
    """Else the cases above would not be the worst."""
    parts = [[s.id, *s.depends_on] for s in plan("t").steps]
    assert ROW_CAP_BYTES / 2 < len(json.dumps(parts)) < SHAPE_MAX_BYTES


def heaviest(lines: dict[str, int], **more: Any) -> dict[str, Any]:
    """Arguments just under what may be handed in, in characters that weigh most."""
    return {**{name: ["\x01" * 100] * count for name, count in lines.items()}, **more}


def test_what_is_handed_in_fits_the_rows_it_is_kept_in() -> None:
    step = FinishStep(**heaviest({"evidence": 18}, summary="s"))
    review = SubmitReview(**heaviest({"findings": 9, "evidence": 9}, verdict="revise"))
    for said in (step, review):
        assert too_heavy(said) is None
        assert len(said.model_dump_json()) > HAND_IN_MAX_BYTES * 0.85
    report = StepReport(step_id="s" * 40, title="\x01" * 200, summary=step.summary, evidence=tuple(step.evidence))
    event = ReviewSubmitted(round=1, verdict="revise", findings=tuple(review.findings), evidence=tuple(review.evidence))
    assert all(len(json_text(one).encode()) <= ROW_CAP_BYTES for one in (report, event))


@pytest.mark.parametrize(
    "said",
    [
        FinishStep(summary="s", evidence=["e" * 2_000] * 7),
        FinishStep(summary="ä" * 4_000, artifacts=["a" * 100] * 50),
        SubmitReview(verdict="revise", findings=["f" * 4_000] * 4),
    ],
)
def test_what_is_heavier_is_refused_with_words_to_act_on(said: FinishStep | SubmitReview) -> None:
    assert "at most 12288: say it shorter" in str(too_heavy(said))
