"""Events and figures in words: one short line each, for people."""

import json
import re
from datetime import datetime
from shlex import quote

from agents.contracts.errors import ErrorInfo
from agents.contracts.event import Event
from agents.contracts.model import Usage
from agents.contracts.task import SLOT, StopReason
from services.cli.styles import Line, bad, command, dim, good, plain, warn
from services.stack.program import runnable

_COMMAND_CHARS = 110


def one_line(text: str, limit: int = _COMMAND_CHARS) -> str:
    """A text on one line, cut. Control characters are left out: nothing that a model wrote reaches the terminal raw."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text[: limit * 8]).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def age(since: datetime, now: datetime) -> str:
    """How long ago: ``3 s``, ``4 min``, ``2 h``."""
    seconds = max(0, int((now - since).total_seconds()))
    if seconds < 100:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 6_000 else f"{seconds // 3600} h"


def money(micro: int) -> str:
    """Micro-units as units."""
    return f"{micro / 1_000_000:.4f}".rstrip("0").rstrip(".") if micro else "0"


def count(number: int, noun: str) -> str:
    """``1 turn``, ``2 turns``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_AWAITED = {
    "engine": "the model, which is down or busy and is asked again",
    "storage": "free space on the disk of the data directory; it goes on once there is some",
    "approval": "a person's decision (`longhaul approvals` lists what waits)",
    "person": "your answer",
    "agent": "another agent's answer",
    SLOT: "its turn, other tasks are running",
}


def awaited(what: str, position: int | None = None) -> str:
    """What a task waits for. What passes without anybody's doing, and what does not, must be said; so is the place in
    the queue."""
    place = f" (number {position} of your queue)" if position else ""
    return _AWAITED.get(what, one_line(what)) + place


def arguments_line(arguments: str) -> str:
    """A call's arguments on one line; a command stands for itself."""
    try:
        given = json.loads(arguments)
    except ValueError:  # an excerpt may be cut
        return one_line(arguments)
    lone = given.get("command") if isinstance(given, dict) else None
    return one_line(lone if isinstance(lone, str) else arguments)


def spent(usage: Usage) -> str:
    """Tokens and cost of a usage."""
    cached = f" ({usage.cached_tokens:,} from cache)" if usage.cached_tokens else ""
    tokens = f"{usage.prompt_tokens:,} prompt{cached} + {usage.completion_tokens:,} completion tokens"
    return f"{tokens}, cost {money(usage.cost_micro)}"


def lines_of(event: Event) -> list[Line]:
    """What a person should read of an event; most events need no line."""
    d = event.data
    step = f"[{event.step_id}] " if event.step_id else ""
    match d.type:
        case "task.created":
            return [dim(f"task {event.task_id} accepted")]
        case "task.status" if d.waiting_for:
            return [warn(f"waiting for {awaited(d.waiting_for)}")]
        case "plan.submitted" | "plan.revised":
            steps = [plain(f"  {s.id}: {one_line(s.title)}{_after(s.depends_on)}") for s in d.steps]
            return [plain(f"plan {d.revision}: {count(len(d.steps), 'step')}"), *steps]
        case "step.started":
            again = f" again, round {d.round}" if d.round > 1 else ""
            return [plain(f"{step}started{again}: {one_line(d.title)}")]
        case "step.completed":
            return [good(f"{step}done: {one_line(d.summary)}")]
        case "step.failed" if d.stop_reason is StopReason.CANCELLED:
            return [warn(f"{step}cancelled")]
        case "step.failed":
            return [bad(f"{step}failed: {d.stop_reason.value}{_why(d.error)}")]
        case "model.completed":
            return [dim(f"{step}{one_line(d.text)}")] if d.text.strip() else []
        case "model.failed" | "turn.failed":
            return [warn(f"{step}{d.error.code.value}: {one_line(d.error.detail, 200)}")]
        case "model.fallback":
            return [warn(f"{step}{d.code.value}: asking the {d.to_tier} tier instead of {d.from_tier}")]
        case "exec.started":
            return [command(f"{step}{'check ' if d.purpose == 'check' else ''}$ {one_line(d.command)}")]
        case "exec.exited":
            return [_exited(step, d.exit_code, d.reason, d.duration_ms, d.output)]
        case "exec.lost":
            return [bad(f"{step}a command's end is not known")]
        case "tool.called" if d.tool in ("read_file", "write_file", "edit_file"):
            return [command(f"{step}{d.tool} {_path(d.arguments)}")]
        case "tool.failed":
            return [warn(f"{step}{d.tool}: {d.code.value}: {one_line(d.content, 200)}")]
        case "review.started":
            return [plain(f"{step}review, round {d.round}, in a clean copy")]
        case "review.submitted":
            say = good if d.verdict == "approve" else warn
            return [say(f"{step}review: {d.verdict}"), *(warn(f"    {one_line(f)}") for f in d.findings)]
        case "artifact.created":
            return [good(f"{step}kept {one_line(d.path)} ({d.bytes} bytes, sha256 {d.sha256[:12]}…)")]
        case "approval.requested":
            again = " again: nobody knows how it ended the first time" if d.kind == "unknown_outcome" else ""
            return [
                warn(f"{step}asks whether to run {d.tool}{again}: {arguments_line(d.arguments)}"),
                warn(f"  {approve_command(d.approval_id)}"),
            ]
        case "approval.decided":
            say, done = (good, "approved") if d.decision == "approve" else (warn, "denied")
            return [say(f"{step}{done} by {one_line(d.actor)}" + (f": {one_line(d.note)}" if d.note else ""))]
        case "approval.expired":
            return [warn(f"{step}nobody decided in time: {d.approval_id} has expired")]
        case "agent.waiting":
            why = f": {one_line(d.detail, 200)}" if d.detail else ""
            return [warn(f"{step}waits for {awaited(d.waiting_for)}{why}")]
        case "message.sent" if d.kind == "question" and d.to == "person":
            how = runnable(
                f"    answer it: longhaul answer {event.task_id} {quote('your answer')} --question {d.message_id}"
            )
            return [warn(f"{step}asks you: {one_line(d.text, 1_000)}"), warn(how)]
        case "message.sent" if d.kind != "findings":
            return [plain(f"{_who(d.sender)} to {_who(d.to)}: {one_line(d.text, 200)}")]
        case "steer.applied":
            return [dim(f"{step}has read your message")]
        case "budget.warned" | "budget.exhausted":
            return [warn(f"{d.limit}: {d.used} of {d.allowed} spent")]
        case "sandbox.lost":
            return [warn(f"{step}sandbox lost: {one_line(d.detail)}")]
        case "sandbox.restored":
            state = f"after turn {d.turn} of {one_line(d.step)}" if d.step else "at first"
            return [plain(f"{step}sandbox restored as it was {state}; its agents are told what is gone")]
        case "sandbox.denied":
            return [warn(f"{step}network: {one_line(d.detail)}")]
        case "task.completed":
            return [good(f"completed: {one_line(d.summary, 300)}")]
        case "task.failed":
            return [bad(f"failed: {d.stop_reason.value}{_why(d.error)}")]
        case "task.cancelled":
            return [warn("cancelled; nothing of it runs any more")]
    return []


def approve_command(approval_id: str) -> str:
    """What to type to decide, either way."""
    return runnable(f"longhaul approve {approval_id}   or   longhaul deny {approval_id} --note WHY")


def _who(name: str) -> str:
    return "you" if name == "person" else one_line(name, 60)


def _path(arguments: str) -> str:
    """The path in a file tool's arguments, which may be cut."""
    found = re.search(r'"path"\s*:\s*"([^"]*)"', arguments)
    return one_line(found[1]) if found else ""


def _after(depends_on: tuple[str, ...]) -> str:
    return f" (after {', '.join(depends_on)})" if depends_on else ""


def _why(error: ErrorInfo | None) -> str:
    return f" ({error.code.value}: {one_line(error.detail, 400)})" if error else ""


def _exited(step: str, exit_code: int | None, reason: str, duration_ms: int, output: str) -> Line:
    last = next((one_line(line) for line in reversed(output.splitlines()) if line.strip()), "")
    how = f"exit code {exit_code}" if reason == "exited" else f"{reason}, exit code {exit_code}"
    text = f"{step}{how} after {duration_ms / 1000:.1f} s" + (f" · {last}" if last else "")
    return good(text) if exit_code == 0 else bad(text)
