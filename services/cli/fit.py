"""Pictures that share a terminal: how many rows each gets, and which of its rows stay."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text


@dataclass(frozen=True)
class Row:
    """A row of a picture. Where there is no room for all, those of the highest `rank` go first, the last of them
    before the first."""

    text: Text
    rank: int = 0


def fit(rows: Sequence[Row], room: int) -> list[Text]:
    """At most `room` rows, in their order; the first one says how many are missing."""
    if len(rows) <= room:
        return [row.text for row in rows]
    by_weight = sorted(range(len(rows)), key=lambda n: (rows[n].rank, n))
    kept = [rows[n].text for n in sorted(by_weight[: max(1, room)])]
    kept[0].append(f"  +{len(rows) - len(kept)} rows", style="dim")
    return kept


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """So many rows for each: what it wants where there is room for all, else the small ones have theirs and the others
    share the rest; one at least."""
    given = [0] * len(wanted)
    left = room
    by_size = sorted(range(len(wanted)), key=lambda n: wanted[n])
    for place, n in enumerate(by_size):
        given[n] = max(1, min(wanted[n], left // (len(by_size) - place)))
        left -= given[n]
    return given
