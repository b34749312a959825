"""Splitting an amount by weights."""

from collections.abc import Sequence


def split(cents: int, weights: Sequence[int]) -> list[int]:
    """Split `cents` in proportion to `weights`; the shares are in the order of the weights."""
    if any(weight < 0 for weight in weights):
        raise ValueError("weights must not be negative")
    whole = sum(weights)
    if whole == 0:
        raise ValueError("somebody must take part")
    return [round(cents * weight / whole) for weight in weights]
