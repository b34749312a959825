"""The usual turn in one round trip a transaction.

T1 and T2 are each one statement where nothing unusual is to be decided: no cancel, no mail, a budget with room. The
statement finds that out itself, under the same locks in the same order as the long way, and otherwise writes nothing;
then the long way is gone. It also finds out whether its key was used before (a commit whose answer was lost).
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import TextClause

from agents.contracts.base import read_stored
from agents.contracts.errors import Fenced
from agents.contracts.run import Controls
from agents.contracts.trajectory import TurnInputs
from services.store.budget import WARN_AT
from services.store.database import Database
from services.store.ledger_events import Packed, call_rows, of_answer, of_begin, of_results, rows
from services.store.ledger_sql import results, sql
from services.store.ledger_step import Bound, passing
from services.store.spill import Body, json_text, line
from workflows.records import Answer, Intent
from workflows.wording import ASKING

_HELD = """
held AS (
    SELECT id, mail_sent, mail_read FROM agents
    WHERE tenant_id = :tenant_id AND id = :agent_id AND fence = :fence
    FOR NO KEY UPDATE
)"""

_ONCE = """
once AS (
    INSERT INTO ledger_transactions (key, tenant_id, agent_id, at)
    SELECT :key, :tenant_id, :agent_id, :now FROM {0}
    ON CONFLICT (key) DO NOTHING RETURNING key
)"""

_TOLD = """
told AS (
    INSERT INTO events (tenant_id, task_id, seq, type, at, agent_id, step_id, turn, data)
    SELECT :tenant_id, :task_id, task.last_seq - :count + 1 + r.n, r.type, :now, :agent_id, :step, r.turn, r.data
    FROM task, jsonb_to_recordset(CAST(:events AS jsonb)) AS r(n int, type text, turn int, data jsonb)
    ORDER BY r.n
)"""

BEGIN = sql(f"""
WITH {_HELD}, row AS (
    SELECT t.*, t.prompt_tokens + t.completion_tokens AS tokens, held.mail_sent, held.mail_read
    FROM held, tasks AS t WHERE t.tenant_id = :tenant_id AND t.id = :task_id
    FOR NO KEY UPDATE OF t
), go AS (
    SELECT jsonb_build_object('version', 1, 'at', CAST(:at AS text), 'mail', CAST('[]' AS jsonb),
        'control_seq', control_seq, 'tokens_left', tokens_limit - tokens - reserved_tokens,
        'cost_left_micro', cost_limit_micro - cost_micro - reserved_cost_micro,
        'turns_left', turns_limit - turns - 1, 'deadline_at', deadline_at) AS inputs,
        least(:tokens, tokens_limit - tokens - reserved_tokens) AS tokens
    FROM row
    WHERE cancel_requested_at IS NULL AND mail_sent = mail_read AND turns < turns_limit
        AND (tokens_limit IS NULL OR :least_tokens <= tokens_limit - tokens - reserved_tokens)
        AND (cost_limit_micro IS NULL OR (cost_limit_micro > cost_micro
            AND :cost <= cost_limit_micro - cost_micro - reserved_cost_micro))
        AND (budget_warned OR (turns < turns_limit * {WARN_AT}
            AND (tokens_limit IS NULL OR tokens < tokens_limit * {WARN_AT})
            AND (cost_limit_micro IS NULL OR cost_micro < cost_limit_micro * {WARN_AT})))
        AND NOT EXISTS (SELECT 1 FROM ledger_transactions WHERE key = :key)
), {_ONCE.format("go")}, task AS (
    UPDATE tasks SET last_seq = last_seq + :count, updated_at = :now, turns = turns + 1,
        reserved_tokens = reserved_tokens + go.tokens, reserved_cost_micro = reserved_cost_micro + :cost
    FROM once, go WHERE tenant_id = :tenant_id AND id = :task_id RETURNING last_seq
), {results("once")}, opened AS (
    INSERT INTO turns (tenant_id, agent_id, round, turn, inputs, started_at)
    SELECT :tenant_id, :agent_id, :round, :turn, go.inputs, :now FROM once, go
), intent AS (
    INSERT INTO model_calls (key, tenant_id, agent_id, round, turn, k, fence, tier, called_at)
    SELECT :model_key, :tenant_id, :agent_id, :round, :turn, :k, :fence, :tier, :now FROM once
), reserved AS (
    INSERT INTO budget_reservations (tenant_id, key, fence, task_id, agent_id, tokens, cost_micro, reserved_at)
    SELECT :tenant_id, :model_key, :fence, :task_id, :agent_id, go.tokens, :cost, :now FROM once, go
), agent AS (
    UPDATE agents SET activity = :activity, activity_at = :now, turns = turns + 1
    FROM once WHERE tenant_id = :tenant_id AND id = :agent_id
), {_TOLD}
SELECT EXISTS (SELECT 1 FROM held) AS held, (SELECT go.inputs FROM go, once) AS inputs
""")
"""T1, where it opens a turn."""

ANSWER = sql(f"""
WITH {_HELD}, {_ONCE.format("held")}, settled AS (
    UPDATE budget_reservations SET settled_at = :now
    FROM once WHERE tenant_id = :tenant_id AND budget_reservations.key = :model_key AND fence = :fence
        AND settled_at IS NULL
    RETURNING tokens, cost_micro
), sums AS (
    SELECT coalesce(sum(tokens), 0) AS tokens, coalesce(sum(cost_micro), 0) AS cost FROM settled
), task AS (
    UPDATE tasks SET last_seq = last_seq + :count, updated_at = :now,
        reserved_tokens = reserved_tokens - sums.tokens, reserved_cost_micro = reserved_cost_micro - sums.cost,
        prompt_tokens = prompt_tokens + :prompt + CASE WHEN :estimate THEN sums.tokens ELSE 0 END,
        cached_tokens = cached_tokens + :cached, completion_tokens = completion_tokens + :completion,
        cost_micro = cost_micro + :cost + CASE WHEN :estimate THEN sums.cost ELSE 0 END
    FROM once, sums WHERE tenant_id = :tenant_id AND id = :task_id
    RETURNING last_seq, control_seq, cancel_requested_at IS NOT NULL AS cancel
), reply AS (
    UPDATE model_calls SET reply = CAST(:reply AS jsonb), reply_blob = CAST(:reply_blob AS jsonb),
        bad = CAST(:bad AS jsonb), request_sha256 = :request_sha256, answered_at = :now
    FROM once WHERE tenant_id = :tenant_id AND model_calls.key = :model_key AND answered_at IS NULL
), failed AS (
    UPDATE turns SET failed = CAST(:failed AS jsonb), ended_at = :now
    FROM once WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND round = :round AND turn = :turn
        AND CAST(:failed AS jsonb) IS NOT NULL
), calls AS (
    INSERT INTO tool_calls (key, tenant_id, agent_id, round, turn, i, tool, fence, called_at)
    SELECT r.key, :tenant_id, :agent_id, :round, :turn, r.i, r.tool, :fence, :now
    FROM once, jsonb_to_recordset(CAST(:calls AS jsonb)) AS r(key text, i int, tool text)
), agent AS (
    UPDATE agents SET activity = :activity, activity_at = :now, state = 'running', waiting_for = NULL
    FROM once WHERE tenant_id = :tenant_id AND id = :agent_id
), {_TOLD}
SELECT EXISTS (SELECT 1 FROM held) AS held, EXISTS (SELECT 1 FROM once) AS fresh,
    (SELECT control_seq FROM task) AS control_seq, (SELECT cancel FROM task) AS cancel
""")
"""T2."""


async def begin(db: Database, step: Bound, key: str, packed: Packed, intent: Intent) -> TurnInputs | None:
    """T1; None where it has to go the long way.

    Raises:
        Fenced: a newer attempt holds the agent.
    """
    no_mail = TurnInputs(at=step.now, turns_left=0)
    told = [*of_results(step.held, packed.done), *of_begin(step.held, intent, no_mail, known=False)]
    values = step.bound(
        BEGIN,
        dict(
            key=key,
            at=step.now.isoformat(),
            count=len(told),
            events=rows(told),
            **step.results(packed),
            model_key=step.model_key(intent),
            turn=intent.turn,
            k=intent.k,
            tier=intent.tier,
            tokens=intent.tokens,
            least_tokens=intent.least_tokens,
            cost=intent.cost_micro,
            activity=ASKING,
        ),
    )
    row = await _run(db, BEGIN, values)
    return read_stored(TurnInputs, row["inputs"]) if row["inputs"] is not None else None


async def answer(db: Database, step: Bound, key: str, reply: Body, given: Answer) -> Controls | None:
    """T2; None where this key was used before.

    Raises:
        Fenced: a newer attempt holds the agent.
    """
    told = list(of_answer(step.held, given))
    values = step.bound(
        ANSWER,
        {
            "key": key,
            "count": len(told),
            "events": rows(told),
            "model_key": step.held.model_key(given.turn, given.k),
            "turn": given.turn,
            "reply": reply.inline,
            "reply_blob": reply.blob,
            "bad": json_text(given.bad) if given.bad else None,
            "request_sha256": given.request_sha256,
            "failed": json_text(given.failed) if given.failed else None,
            "calls": call_rows(step.held, given),
            "activity": line(given.activity or ASKING),
            "estimate": given.charge_estimate,
            "prompt": given.usage.prompt_tokens,
            "cached": given.usage.cached_tokens,
            "completion": given.usage.completion_tokens,
            "cost": given.usage.cost_micro,
        },
    )
    row = await _run(db, ANSWER, values)
    return Controls(control_seq=row["control_seq"], cancel_requested=row["cancel"]) if row["fresh"] else None


async def _run(db: Database, statement: TextClause, values: dict[str, Any]) -> Mapping[str, Any]:
    with passing():
        row = await db.one(statement, values)
    if not row["held"]:
        raise Fenced
    return row
