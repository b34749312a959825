"""The long_term layer: what an agent knows from its start. Rendered once, frozen with the brief."""

from collections.abc import Iterable, Sequence

from agents.contracts.ids import Role
from agents.contracts.plan import Plan, PlanStep
from agents.contracts.sandbox import DEFAULT_TEMPLATE
from agents.contracts.task import CheckResult
from agents.contracts.trajectory import Brief, StepReport
from agents.tools.text import cap, clean

LISTED_FILES = 200
CHECK_OUTPUT_BYTES = 4_096


def render_long_term(brief: Brief) -> str:
    """The task verbatim, then what is the same for all of its agents, then what this role needs."""
    sections = [
        _section("The task", f"<task>\n{brief.goal}\n</task>"),
        _section("Checks of the task", _checks_asked(brief.task_checks)),
        _section("The sandbox's network", _network(brief.network)),
        _section("The sandbox's programs", _programs(brief.template)),
        _section("Files of the workspace when you started", _listing(brief)),
        *_FOR_ROLE[brief.place.role](brief),
    ]
    return "\n\n".join(section for section in sections if section)


def round_news(brief: Brief) -> str:
    """What is new in a later round (reports, check results, findings), for a notice in the agent's mail: the brief that
    its trajectory began with stays as it was."""
    sections = [
        _section("Reports", _reports(brief.reports)),
        _section("Results of the task's checks, run in a clean copy", _results(brief.checks)),
        _section("Findings", _bullets(brief.findings)),
    ]
    return "\n\n".join(section for section in sections if section)


def _planner(brief: Brief) -> list[str]:
    again = brief.plan is not None or bool(brief.findings)
    return [
        _section("The plan so far, which you replace", _whole_plan(brief.plan)),
        _section("Finished steps (kept where your plan has the same id)", _reports(brief.reports)),
        _section("Results of the task's checks, run in a clean copy", _results(brief.checks)),
        _section("Why a new plan is needed", _bullets(brief.findings)),
        _section("Now", "Plan again. Say in `notes` what you changed and why." if again else "Plan this task."),
    ]


def _executor(brief: Brief) -> list[str]:
    return [
        _section("The plan", _outline(brief.plan, brief.step)),
        _section("What the steps before yours left", _reports(brief.reports)),
        _section("Findings to deal with", _bullets(brief.findings)),
        _section("Your step", _step(brief.step) if brief.step else ""),
    ]


def _reviewer(brief: Brief) -> list[str]:
    return [
        _section("The plan", _outline(brief.plan, brief.step) if brief.step else _whole_plan(brief.plan)),
        _section("The step under review", _step(brief.step) if brief.step else ""),
        _section("What was promised (claims, until you have seen them hold)", _reports(brief.reports)),
        _section("Results of the task's checks, run in a clean copy", _results(brief.checks)),
        _section("Findings of earlier reviews", _bullets(brief.findings)),
        _section(
            "Now", f"Review {'this step' if brief.step else 'the whole task'} in your clean copy of the workspace."
        ),
    ]


_FOR_ROLE = {Role.PLANNER: _planner, Role.EXECUTOR: _executor, Role.REVIEWER: _reviewer}


def _section(title: str, body: str) -> str:
    return f"# {title}\n{body}" if body else ""


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _checks_asked(checks: Sequence[str]) -> str:
    return f"Each must exit 0 in a clean copy before the task is done:\n{_bullets(checks)}" if checks else ""


def _network(hosts: Sequence[str]) -> str:
    if not hosts:
        return ""
    return (
        f"Commands reach these hosts by HTTP and HTTPS, through a proxy that their environment names, and no others: "
        f"{', '.join(hosts)}. What is refused is said in a command's result."
    )


def _programs(template: str) -> str:
    if template == DEFAULT_TEMPLATE:
        return ""
    return (
        f"They are those of the template `{template}`, not those you were told of. Before you build on a program or a "
        "Python package, see whether it is there."
    )


def _listing(brief: Brief) -> str:
    shown = brief.listing[:LISTED_FILES]
    total = max(brief.listing_total, len(brief.listing))
    if not shown:
        return "It is empty." if brief.place.role is not Role.REVIEWER else ""
    more = [f"and {total - len(shown)} more"] if total > len(shown) else []
    return "\n".join([f"{entry.path} ({entry.bytes} bytes)" for entry in shown] + more)


def _step(step: PlanStep) -> str:
    lines = [f"{step.id}: {step.title}", step.instructions, "Acceptance:", _bullets(step.acceptance)]
    if step.resources:
        lines.append(f"Stay within: {', '.join(step.resources)}")
    return "\n".join(lines)


def _whole_plan(plan: Plan | None) -> str:
    if plan is None:
        return ""
    steps = [f"{_step(step)}\nDepends on: {', '.join(step.depends_on) or 'nothing'}" for step in plan.steps]
    return "\n\n".join(steps + ([f"Notes: {plan.notes}"] if plan.notes else []))


def _outline(plan: Plan | None, own: PlanStep | None) -> str:
    if plan is None:
        return ""
    return "\n".join(_outline_line(step, own is not None and step.id == own.id) for step in plan.steps)


def _outline_line(step: PlanStep, own: bool) -> str:
    after = f" (after {', '.join(step.depends_on)})" if step.depends_on else ""
    return f"- {step.id}: {step.title}{after}{' <- this one' if own else ''}"


def _reports(reports: Sequence[StepReport]) -> str:
    return "\n\n".join(_report(report) for report in reports)


def _report(report: StepReport) -> str:
    lines = [f"{report.step_id}: {report.title}", report.summary]
    lines += [f"Evidence:\n{_bullets(report.evidence)}"] if report.evidence else []
    lines += [f"Artifacts: {', '.join(report.artifacts)}"] if report.artifacts else []
    return "\n".join(lines)


def _results(checks: Sequence[CheckResult]) -> str:
    return "\n\n".join(_result(check) for check in checks)


def _result(check: CheckResult) -> str:
    code = "no exit code" if check.exit_code is None else f"exit code {check.exit_code}"
    output = cap(clean(check.output), CHECK_OUTPUT_BYTES).text.rstrip()
    return f"{'passed' if check.passed else 'FAILED'}: {check.command} ({code})" + (f"\n{output}" if output else "")
