"""What came of a run: figures, what is wrong with them, and the line that it ends with."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.stress import footprint, judge
from tests.stress.footprint import MB
from tests.stress.judge import Ran
from tests.stress.run import Record
from tests.stress.size import Size

QUICK_S = {"submit": 2.0, "list": 1.0, "events": 1.0, "task": 1.0}
"""The longest that 95 of 100 calls of a kind may take, on a machine that all its tasks keep busy."""


def share(values: Sequence[float], percent: int) -> float:
    """The value that so many of a hundred do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else sum(values)


@dataclass(frozen=True)
class Verdict:
    """Lines for a person, what is wrong, and the one line for a script."""

    lines: list[str]
    problems: list[str]
    line: str


def judged(record: Record, size: Size, *, footprints: bool = True) -> Verdict:
    """Judge a run. Without `footprints` memory and files are only shown: a short run has not settled when it ends."""
    growths = footprint.growths(record.samples, size.tasks)
    problems = [*_of_outcome(record, size), *_of_turns(record, size), *_of_calls(record)]
    if footprints:
        problems += [] if growths else ["memory and files: the run was too short to say"]
        problems += [problem for growth in growths for problem in growth.problems]
    lines = [*_outcome_lines(record), *_call_lines(record), *_start_lines(record), *_footprint_lines(record, growths)]
    return Verdict(lines, problems, _line(record, size, problems))


def _of_outcome(record: Record, size: Size) -> list[str]:
    outcome, found = record.outcome, []
    if outcome.completed != size.tasks:
        found.append(f"{outcome.completed} of {size.tasks} tasks are completed; the others: {outcome.others}")
    for count, what in (
        (outcome.gaps, "tasks whose events have a gap"),
        (outcome.unpublished, "events that were not published"),
        (outcome.sandboxes, "sandboxes that were left"),
    ):
        if count:
            found.append(f"{count} {what}")
    return found + [f"logged as an error: {line[:300]}" for line in record.log_errors[:5]]


def _of_turns(record: Record, size: Size) -> list[str]:
    ran, found = record.outcome.ran, []
    most = max(record.running, judge.most_at_once(ran))
    if most > size.running:
        found.append(f"{most} tasks had a place at once, {size.running} may")
    if wrong := judge.unfair(ran):
        found.append(f"{len(wrong)} places were given to a tenant while another waited that held fewer")
    if _others(record):
        took, fair = judge.last_turn(ran, record.load.tenants[0])
        if took > fair + size.running:
            found.append(f"the last task of the small tenants was start number {took}; by turns it is {fair}")
    return found


def _of_calls(record: Record) -> list[str]:
    slow = ((kind, share(record.load.seconds[kind], 95), limit) for kind, limit in QUICK_S.items())
    return [f"{kind}: 95 of 100 took {took:.2f} s, {limit} s may" for kind, took, limit in slow if took > limit]


def _others(record: Record) -> list[Ran]:
    return [task for task in record.outcome.ran if task.tenant != record.load.tenants[0]]


def _outcome_lines(record: Record) -> list[str]:
    outcome = record.outcome
    done = f"{outcome.completed} completed in {record.seconds:.0f} s, others {outcome.others or 'none'}"
    return [done, f"errors logged: {len(record.log_errors)}", *(f"{n} {what}" for what, n in record.late.items())]


def _call_lines(record: Record) -> list[str]:
    return [f"{kind:<8}{_spread(record.load.seconds[kind])}" for kind in QUICK_S]


def _start_lines(record: Record) -> list[str]:
    """How long tasks waited for their place."""
    lines = []
    for tenant in record.load.tenants:
        waited = [
            (task.admitted - task.created).total_seconds() for task in record.outcome.ran if task.tenant == tenant
        ]
        lines.append(f"{tenant:<16} submit to start: {_spread(waited)}")
    return lines


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "none"
    p50, p95 = (share(seconds, percent) * 1000 for percent in (50, 95))
    return f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, longest {max(seconds) * 1000:.0f} ms ({len(seconds)})"


def _footprint_lines(record: Record, growths: Sequence[footprint.Growth]) -> list[str]:
    first, last = record.samples[0], record.samples[-1]
    middle = {growth.name: (growth.early, growth.late) for growth in growths}
    lines = [f"{'MB of PSS / open files':<24}{'start':>14}{'early':>14}{'late':>14}{'end':>14}{'CPU s':>10}"]
    for name, start in first.held.items():
        early, late = middle.get(name, (None, None))
        held = (start, early, late, last.held[name])
        shown = "".join(f"{f'{one.pss / MB:.0f} / {one.files}' if one else '-':>14}" for one in held)
        lines.append(f"{name:<24}{shown}{last.held[name].cpu_s - start.cpu_s:>10.1f}")
    return lines


def _line(record: Record, size: Size, problems: Sequence[str]) -> str:
    ran, calls = record.outcome.ran, record.load.seconds
    took, fair = judge.last_turn(ran, record.load.tenants[0]) if _others(record) else (0, 0)
    values = {
        "tasks": size.tasks,
        "finished": record.outcome.completed,
        "running_max": max(record.running, judge.most_at_once(ran)),
        "again": record.outcome.again,
        "unfair": len(judge.unfair(ran)),
        "small_last_start": took,
        "by_turns": fair,
        "seconds": round(record.seconds),
        "submit_p95_ms": round(share(calls["submit"], 95) * 1000),
        "list_p95_ms": round(share(calls["list"], 95) * 1000),
        "events_p95_ms": round(share(calls["events"], 95) * 1000),
        "problems": len(problems),
    }
    return "STRESS " + " ".join(f"{name}={value}" for name, value in values.items())
