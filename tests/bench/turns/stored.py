"""What a turn leaves behind: bytes in rows, WAL, S3, NATS and Temporal's history, early in a run and late."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from temporalio.client import WorkflowHandle

from services.relay.outbox import event_body
from tests.bench.turns.report import Size, target
from tests.support.turns import Parts, Scene

TABLES = {
    "turns": "turn BETWEEN :first AND :last",
    "model_calls": "turn BETWEEN :first AND :last",
    "tool_calls": "turn BETWEEN :first AND :last",
    "events": "turn BETWEEN :first AND :last",
    "budget_reservations": "reserved_at >= :begun AND reserved_at < :ended",
    "ledger_transactions": "at >= :begun AND at < :ended",
}
"""Which rows are those of a window. The last two do not know their turn."""

LIMIT = 1.05
Window = tuple[int, int]


@dataclass(frozen=True)
class Look:
    """What was stored when a turn was about to begin, in bytes: WAL of the whole database, S3 objects of this
    benchmark, the history of the agent's workflow."""

    turn: int
    wal: int
    s3: int
    history: int


async def look(parts: Parts, workflow: WorkflowHandle[Any, Any], turn: int, s3: int) -> Look:
    """Look now."""
    async with parts.db.begin() as conn:
        wal = (await conn.execute(text("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))).scalar_one()
    told = await workflow.describe()
    return Look(turn, int(wal), s3, int(told.raw_description.workflow_execution_info.history_size_bytes))


async def tell(parts: Parts, scene: Scene, looks: Sequence[Look], requests: Mapping[int, int], size: Size) -> None:
    """Print what was written a turn near the start and before the new agents came, apart from the request, which is
    not stored."""
    early, late = windows(size)
    rows = [await _rows(parts, scene, window) for window in (early, late)]
    told = {f"rows of {table}": (rows[0][table], rows[1][table]) for table in TABLES}
    told["rows, together"] = (sum(rows[0].values()), sum(rows[1].values()))
    told["S3"], told["WAL"] = _per_turn(looks, "s3", early, late), _per_turn(looks, "wal", early, late)
    told["events as NATS has them"] = (await _events(parts, scene, early), await _events(parts, scene, late))
    told["Temporal history"] = _per_turn(looks, "history", early, late)
    print(f"  bytes written a turn, turns {early[0]} to {early[1]} and {late[0]} to {late[1]}:")
    for name, (first, last) in told.items():
        print(f"    {name:<32} {first:9.1f} {last:9.1f}")
    grown = max(told[name][1] / told[name][0] for name in ("rows, together", "S3", "events as NATS has them"))
    target(f"constant: late / early <= {LIMIT} in rows, S3 and events", grown <= LIMIT)
    print(f"  the request itself: {requests[early[1]]} characters in turn {early[1]}, {requests[late[1]]} in {late[1]}")


def windows(size: Size) -> tuple[Window, Window]:
    """Two bursts early in the run, and the two before those that new agents ran beside."""
    last = size.long - size.pairs * size.burst
    return (size.burst + 1, 3 * size.burst), (last - 2 * size.burst + 1, last)


async def _rows(parts: Parts, scene: Scene, window: Window) -> dict[str, float]:
    """Bytes a turn by table."""
    first, last = window
    begun, ended = await _times(parts, scene, window)
    mine = {"agent": scene.ref.place.agent_id, "first": first, "last": last, "begun": begun, "ended": ended}
    sizes: dict[str, float] = {}
    async with parts.db.begin() as conn:
        for table, which in TABLES.items():
            query = (
                f"SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {table} AS t WHERE agent_id = :agent AND {which}"
            )
            sizes[table] = (await conn.execute(text(query), mine)).scalar_one() / (last - first + 1)
    return sizes


async def _times(parts: Parts, scene: Scene, window: Window) -> tuple[datetime, datetime]:
    """When the first turn of a window began, and the one after its last."""
    query = text("SELECT started_at FROM turns WHERE agent_id = :agent AND turn IN (:first, :next) ORDER BY turn")
    values = {"agent": scene.ref.place.agent_id, "first": window[0], "next": window[1] + 1}
    async with parts.db.begin() as conn:
        begun, ended = (await conn.execute(query, values)).scalars().all()
    return begun, ended


async def _events(parts: Parts, scene: Scene, window: Window) -> float:
    """Bytes of events a turn, as they are published."""
    query = text("SELECT * FROM events WHERE agent_id = :agent AND turn BETWEEN :first AND :last")
    values = {"agent": scene.ref.place.agent_id, "first": window[0], "last": window[1]}
    async with parts.db.begin() as conn:
        told = (await conn.execute(query, values)).mappings().all()
    return sum(len(event_body(dict(row))) for row in told) / (window[1] - window[0] + 1)


def _per_turn(looks: Sequence[Look], what: str, *windows: Window) -> tuple[float, float]:
    """Bytes a turn in each window: looks are taken where bursts begin, and windows are whole bursts."""
    at = {look.turn: getattr(look, what) for look in looks}
    early, late = ((at[last + 1] - at[first]) / (last - first + 1) for first, last in windows)
    return early, late
