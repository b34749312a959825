"""The model's side of the recovery ladder: a reply that cannot be used changes something before it is asked again.

What is said to the model about its reply is in `context.wording`; here is what changes in the request.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agents.contracts.errors import ErrorCode, ErrorInfo
from agents.contracts.ids import Role
from agents.contracts.plan import Tier
from agents.contracts.trajectory import Attempt, Brief

ToolChoice = Literal["auto", "required"]


@dataclass(frozen=True, slots=True)
class Ask:
    """How to make the next model call of a turn."""

    tier: Tier
    temperature: float = 0.0
    tool_choice: ToolChoice = "required"


@dataclass(frozen=True, slots=True)
class Change:
    """What is different in a repeated ask: the temperature, and whether the other tier is taken (only where the user
    left the tier to us)."""

    temperature: float = 0.0
    other_tier: bool = False


E = ErrorCode
SECOND_AND_THIRD: dict[ErrorCode, tuple[Change, ...]] = {
    # told once to call a tool; a model that still talks is not going to be talked out of it
    E.NO_TOOL_CALL: (Change(temperature=0.2),),
    E.EMPTY_REPLY: (Change(temperature=0.4), Change(temperature=0.4, other_tier=True)),
    E.REPLY_TRUNCATED: (Change(temperature=0.2), Change(temperature=0.2, other_tier=True)),
    # not the model's fault: the same again, then elsewhere
    E.REPLY_ABORTED: (Change(), Change(other_tier=True)),
    E.UNPARSABLE_CALL: (Change(other_tier=True), Change(temperature=0.4, other_tier=True)),
    E.REFUSED: (Change(temperature=0.4), Change(temperature=0.4, other_tier=True)),
    # the same prompt cannot become shorter by asking again
    E.CONTEXT_TOO_LONG: (),
}
"""For every code of class *model*: the changes of the second and the third ask. Fewer entries, fewer asks."""

_DEFAULT: dict[Role, Tier] = {Role.PLANNER: "full", Role.EXECUTOR: "fast", Role.REVIEWER: "full"}


def next_attempt(brief: Brief, role: Role, attempts: Sequence[Attempt]) -> Ask | ErrorInfo:
    """How to ask next, given the turn's attempts so far; an `ErrorInfo` gives the turn up. An attempt without an
    answer (its process died) does not count: it is asked again as it was."""
    tier = first_tier(brief, role)
    bad = [attempt.bad for attempt in attempts if attempt.bad is not None]
    if not bad:
        return Ask(tier)
    last = bad[-1]
    changes = SECOND_AND_THIRD.get(last.code, ())
    if len(bad) > len(changes):
        return ErrorInfo(code=last.code, detail=f"{last.detail} Asked {len(bad)} times.")
    change = changes[len(bad) - 1]
    return Ask(_other(tier) if change.other_tier and brief.tier == "auto" else tier, change.temperature)


def first_tier(brief: Brief, role: Role) -> Tier:
    """The tier of a turn's first ask: what the user named, else what the plan says of the executor's step, else the
    role's own."""
    if brief.tier != "auto":
        return brief.tier
    planned = brief.step.tier if brief.step is not None and role is Role.EXECUTOR else None
    return planned or _DEFAULT[role]


def _other(tier: Tier) -> Tier:
    return "fast" if tier == "full" else "full"
