"""The scratch layer: what changes every turn. Always the last message, never repeated in a later prompt."""

from datetime import UTC, timedelta

from agents.contracts.ids import Role
from agents.contracts.trajectory import TurnInputs
from agents.roles import ROLES

LAST_TURNS = 3
"""With so few turns left, an agent is told to come to an end."""


def render_scratch(role: Role, inputs: TurnInputs, nudge: str | None) -> str:
    """Clock, what is left, and a word where one is due."""
    lines = [
        "[status; not part of the task, needs no answer]",
        f"now: {inputs.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        f"turns left: {inputs.turns_left}",
    ]
    if inputs.tokens_left is not None:
        lines.append(f"tokens left: {inputs.tokens_left}")
    if inputs.cost_left_micro is not None:
        lines.append(f"money left: {inputs.cost_left_micro // 1_000_000}.{inputs.cost_left_micro % 1_000_000:06d}")
    if inputs.deadline_at is not None:
        lines.append(f"time left: {_span(inputs.deadline_at - inputs.at)}")
    if inputs.turns_left <= LAST_TURNS:
        ends = ", ".join(tool for tool in ROLES[role].control if tool != "ask")
        lines.append(f"Few turns are left: finish now with what you have ({ends}).")
    if nudge is not None:
        lines.append(nudge)
    return "\n".join(lines)


def _span(left: timedelta) -> str:
    seconds = max(int(left.total_seconds()), 0)
    hours, minutes = seconds // 3_600, seconds % 3_600 // 60
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds % 60:02d} s"
