"""Reading an agent's trajectory and a round's end back from the ledger."""

import json
from collections import defaultdict
from typing import Any

from sqlalchemy import Row, Table, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from agents.contracts.base import read_stored
from agents.contracts.errors import ErrorInfo
from agents.contracts.model import BadReply, ModelReply
from agents.contracts.run import BurstEnd, BurstReason
from agents.contracts.tool import ToolResult
from agents.contracts.trajectory import Attempt, Turn, TurnInputs
from agents.tools.submit_review import SubmitReview
from services.store.spill import Spill
from services.store.tables import model_calls, tool_calls, turns
from workflows.records import Held

Place = tuple[int, int]
"""Round and turn."""


async def load_turns(conn: AsyncConnection, spill: Spill, held: Held, after: Place) -> list[Turn]:
    """Every turn of the agent after one, in order."""
    rows = await _rows(conn, turns, held, after, ("round", "turn"))
    calls = await _rows(conn, model_calls, held, after, ("round", "turn", "k"))
    tools = await _rows(conn, tool_calls, held, after, ("round", "turn", "i"))
    tenant = held.ref.tenant_id
    inputs = await spill.models(tenant, TurnInputs, rows, "inputs")
    replies = await spill.models(tenant, ModelReply, calls, "reply")
    results = await spill.models(tenant, ToolResult, tools, "result")
    attempts: dict[Place, list[Attempt]] = defaultdict(list)
    for call, reply in zip(calls, replies, strict=True):
        bad = BadReply.model_validate(call["bad"]) if call["bad"] is not None else None
        attempt = Attempt(k=call["k"], reply=reply, bad=bad, request_sha256=call["request_sha256"])
        attempts[call["round"], call["turn"]].append(attempt)
    outcomes: dict[Place, list[ToolResult | None]] = defaultdict(list)
    for tool, result in zip(tools, results, strict=True):
        outcomes[tool["round"], tool["turn"]].append(result)
    return [
        _turn(row, given, attempts[row["round"], row["turn"]], outcomes[row["round"], row["turn"]])
        for row, given in zip(rows, inputs, strict=True)
    ]


async def round_end(spill: Spill, tenant_id: str, row: Row[Any], turn_count: int) -> BurstEnd:
    """The answer that the burst which ended this round gave or would have given."""
    outcome = await spill.text(tenant_id, row.outcome, row.outcome_blob)
    reviewed = outcome is not None and "verdict" in json.loads(outcome)
    verdict = read_stored(SubmitReview, outcome).verdict if reviewed and outcome else None
    return BurstEnd(
        reason=BurstReason(row.reason),
        turns=turn_count,
        error=ErrorInfo.model_validate(row.error) if row.error is not None else None,
        verdict=verdict,
    )


async def _rows(
    conn: AsyncConnection, table: Table, held: Held, after: Place, order: tuple[str, ...]
) -> list[dict[str, Any]]:
    query = select(table).where(table.c.tenant_id == held.ref.tenant_id, table.c.agent_id == held.agent_id)
    query = query.where(tuple_(table.c.round, table.c.turn) > tuple_(*after))
    query = query.order_by(*(table.c[name] for name in order))
    return [dict(row) for row in (await conn.execute(query)).mappings()]


def _turn(
    row: dict[str, Any], inputs: TurnInputs | None, attempts: list[Attempt], results: list[ToolResult | None]
) -> Turn:
    assert inputs is not None  # written when the turn was opened
    return Turn(
        round=row["round"],
        turn=row["turn"],
        inputs=inputs,
        attempts=tuple(attempts),
        results=tuple(results),
        failed=ErrorInfo.model_validate(row["failed"]) if row["failed"] is not None else None,
    )
