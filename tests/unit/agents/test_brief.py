"""What each role is told at its start, and how mail reads."""

from datetime import timedelta
from typing import Any, get_args

import pytest

from agents.context.long_term import LISTED_FILES, render_long_term, round_news
from agents.context.mail import INTRODUCTION, render_mail
from agents.contracts.ids import Role
from agents.contracts.message import MailKind
from agents.contracts.sandbox import FileEntry
from agents.contracts.task import CheckResult
from agents.contracts.trajectory import StepReport
from tests.unit.agents import make

GOAL = "Mend it.\n\n# The task\n  keep   my blanks\t</task> ünïcode\n"
STEPS = (make.step("parse", title="Parse"), make.step("fix", depends_on=["parse"], resources=["path:src"], tier="full"))
REPORT = StepReport(
    step_id="parse", title="Parse", summary="It parses.", evidence=("pytest: 3 passed",), artifacts=("a",)
)
FAILED = CheckResult(command="make test", exit_code=2, passed=False, output="\x1b[31mboom\x1b[0m\n", duration_ms=1)
PASSED = CheckResult(command="make lint", exit_code=0, passed=True, output="", duration_ms=1)
LOST = CheckResult(command="make it", exit_code=None, passed=False, output="", duration_ms=1)


def told(role: Role, **more: Any) -> str:
    return render_long_term(make.brief(role, goal=GOAL, **more))


@pytest.mark.parametrize("role", Role)
def test_every_role_has_the_task_verbatim_its_checks_and_the_files(role: Role) -> None:
    files = tuple(FileEntry(path=f"src/f{n:03}.py", bytes=n) for n in range(250))
    text = told(role, listing=files, listing_total=1_000, task_checks=("make test", "make lint"))
    assert f"<task>\n{GOAL}\n</task>" in text
    assert "- make test\n- make lint" in text
    assert text.count(" bytes)") == LISTED_FILES
    assert "src/f000.py (0 bytes)" in text
    assert "and 800 more" in text


@pytest.mark.parametrize("role", Role)
def test_every_role_knows_the_network_where_there_is_one(role: Role) -> None:
    assert "pypi.org, *.example.org:443" in told(role, network=("pypi.org", "*.example.org:443"))
    assert "network" not in told(role)


@pytest.mark.parametrize("role", Role)
def test_every_role_knows_that_the_programs_are_others(role: Role) -> None:
    assert "those of the template `standard_dev`" in told(role, template="standard_dev")
    assert "template" not in told(role)


def test_the_planner_plans_from_the_task_alone() -> None:
    text = told(Role.PLANNER)
    assert text.endswith("# Now\nPlan this task.")
    assert "It is empty." in text


def test_the_planner_plans_again_from_plan_reports_checks_and_findings() -> None:
    text = told(
        Role.PLANNER, plan=make.plan(*STEPS), reports=(REPORT,), checks=(FAILED,), findings=("The API differs.",)
    )
    for words in (
        "parse: Parse",
        "Depends on: parse",
        "It parses.",
        "FAILED: make test",
        "- The API differs.",
        "Plan again",
    ):
        assert words in text
    reports_only = told(Role.PLANNER, reports=(REPORT,))
    assert "It parses." in reports_only


def test_the_executor_knows_its_step_the_outline_and_what_came_before() -> None:
    text = told(Role.EXECUTOR, plan=make.plan(*STEPS), step=STEPS[1], reports=(REPORT,))
    assert "- parse: Parse\n- fix: Fix it (after parse) <- this one" in text
    assert (
        "# What the steps before yours left\nparse: Parse\nIt parses.\nEvidence:\n- pytest: 3 passed\nArtifacts: a"
        in text
    )
    assert text.endswith("# Your step\nfix: Fix it\nMend.\nAcceptance:\n- tests pass\nStay within: path:src")


def test_the_reviewer_of_a_step_sees_criteria_and_claims() -> None:
    text = told(Role.REVIEWER, plan=make.plan(*STEPS), step=STEPS[0], reports=(REPORT,), findings=("line 3",))
    assert "# The step under review\nparse: Parse" in text
    assert "claims, until you have seen them hold" in text
    assert "- line 3" in text
    assert text.endswith("Review this step in your clean copy of the workspace.")


def test_the_final_reviewer_sees_all_steps_and_the_results_of_the_checks() -> None:
    text = told(Role.REVIEWER, plan=make.plan(*STEPS), reports=(REPORT,), checks=(FAILED, PASSED, LOST))
    assert "FAILED: make test (exit code 2)\nboom\n" in text
    assert "passed: make lint (exit code 0)" in text
    assert "FAILED: make it (no exit code)" in text
    assert text.count("Acceptance:") == 2
    assert text.endswith("Review the whole task in your clean copy of the workspace.")


@pytest.mark.parametrize("role", Role)
def test_a_check_that_floods_is_cut(role: Role) -> None:
    flood = FAILED.model_copy(update={"output": "x\n" * 100_000})
    assert len(told(role, checks=(flood,), plan=make.plan(*STEPS), step=STEPS[0])) < 8_000


def test_the_same_brief_reads_the_same_and_no_clock_or_sandbox_is_in_it() -> None:
    one, two = make.brief(sandbox_id="sbx_1", sandbox_fence=1), make.brief(sandbox_id="sbx_2", sandbox_fence=9)
    assert render_long_term(one) == render_long_term(two)


def test_news_of_a_round_holds_only_what_is_new() -> None:
    news = round_news(make.brief(reports=(REPORT,), checks=(PASSED,), findings=("line 3",)))
    assert "It parses." in news
    assert "make lint" in news
    assert "- line 3" in news
    assert "Make the tests pass." not in news
    assert round_news(make.brief()) == ""


@pytest.mark.parametrize("kind", get_args(MailKind))
def test_every_kind_of_mail_is_introduced(kind: MailKind) -> None:
    text = render_mail([make.mail(3, "Use  tabs.\n", kind, "ada")])
    assert text == f"[{kind} 3 from ada] {INTRODUCTION[kind]}\nUse  tabs.\n"


def test_mail_keeps_its_order_and_tells_no_clock() -> None:
    first, second = make.mail(1, "first"), make.mail(2, "second")
    later = first.model_copy(update={"sent_at": make.NOW + timedelta(days=1)})
    assert render_mail([first, second]) == render_mail([later, second])
    assert render_mail([first, second]).index("first") < render_mail([first, second]).index("second")
    assert render_mail([]) == ""
