"""Whose task starts next where places are scarce. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime


@dataclass(frozen=True)
class Claim:
    """A tenant with tasks in the queue: how many wait, how many of its tasks hold a place, when it was last given one
    (None: never)."""

    tenant_id: str
    waiting: int
    holds: int
    served_at: datetime | None = None


def turns(claims: Iterable[Claim], places: int) -> list[str]:
    """The tenants of the next `places` starts, in order; one may occur more than once.

    A place goes to the tenant that holds the fewest; among equals to the one that was served longest ago. So a tenant
    that floods the queue gets no more than the others as long as they want something, and all of it when they do not.
    """
    left = {claim.tenant_id: claim for claim in claims if claim.waiting > 0}
    served: dict[str, int] = {}
    order: list[str] = []
    while left and len(order) < places:
        chosen = min(left.values(), key=lambda claim: (claim.holds, *_since(claim, served)))
        order.append(chosen.tenant_id)
        served[chosen.tenant_id] = len(order)
        if chosen.waiting == 1:
            del left[chosen.tenant_id]
        else:
            left[chosen.tenant_id] = replace(chosen, waiting=chosen.waiting - 1, holds=chosen.holds + 1)
    return order


def _since(claim: Claim, served: dict[str, int]) -> tuple[int, float, str]:
    """Sorts by when it was last served: in this round after all others; never comes first."""
    at = claim.served_at.timestamp() if claim.served_at else float("-inf")
    return served.get(claim.tenant_id, 0), at, claim.tenant_id
