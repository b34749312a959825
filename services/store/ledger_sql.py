"""The statements of the turn ledger. They are text, not expressions, because each is one round trip that does what
eight would: data-modifying CTEs, with lists passed as one JSON parameter, so that the text never changes and is
prepared once per connection. Names follow `tables`; a test runs every statement against the migrated schema.

Lock order: agent, mail, budget, task last; then event numbers are taken and events inserted.
"""

import re
from functools import cache
from typing import Any

from sqlalchemy import BigInteger, Boolean, DateTime, Integer, Text, TextClause, bindparam, text
from sqlalchemy.types import TypeEngine

_TYPES: dict[str, TypeEngine[Any]] = {
    "now": DateTime(timezone=True),
    **dict.fromkeys(["fence", "mail_read", "first", "tokens", "cost", "prompt", "completion", "cached"], BigInteger()),
    **dict.fromkeys(["round", "turn", "k", "count", "closes", "done_turn", "begins"], Integer()),
    **dict.fromkeys(["opens", "estimate", "warned", "waiting", "resumed", "heard"], Boolean()),
    "least_tokens": BigInteger(),
}

_NAME = re.compile(r"(?<!:):([a-z_0-9]+)")


def sql(statement: str) -> TextClause:
    """A statement with the types of its parameters."""
    clause = text(statement)
    found = sorted(set(_NAME.findall(statement)))
    return clause.bindparams(*(bindparam(name, type_=_TYPES.get(name, Text())) for name in found))


@cache
def names(statement: TextClause) -> tuple[str, ...]:
    """The parameters of one of the statements here."""
    return tuple(sorted(set(_NAME.findall(statement.text))))


CLAIM = sql("""
WITH held AS (
    SELECT id, mail_sent, mail_read, turns, waiting_for FROM agents
    WHERE tenant_id = :tenant_id AND id = :agent_id AND fence = :fence
    FOR NO KEY UPDATE
), once AS (
    INSERT INTO ledger_transactions (key, tenant_id, agent_id, at)
    SELECT :key, :tenant_id, id, :now FROM held
    ON CONFLICT (key) DO NOTHING RETURNING key
)
SELECT mail_sent, mail_read, turns, waiting_for, EXISTS (SELECT 1 FROM once) AS fresh FROM held
""")
"""Lock the agent where the fence is still ours, and take the transaction's key."""

TASK = sql("""
SELECT last_seq, control_seq, cancel_requested_at IS NOT NULL AS cancel, status, waiting_for, tokens_limit,
    cost_limit_micro, turns_limit, turns, prompt_tokens + completion_tokens AS tokens, cost_micro, reserved_tokens,
    reserved_cost_micro, budget_warned, deadline_at
FROM tasks WHERE tenant_id = :tenant_id AND id = :task_id
FOR NO KEY UPDATE
""")

LOST = sql("""
WITH lost AS (
    UPDATE budget_reservations SET settled_at = :now
    WHERE tenant_id = :tenant_id AND key = :model_key AND fence <> :fence AND settled_at IS NULL
    RETURNING tokens, cost_micro
), sums AS (
    SELECT coalesce(sum(tokens), 0) AS tokens, coalesce(sum(cost_micro), 0) AS cost FROM lost
), charged AS (
    UPDATE tasks SET reserved_tokens = reserved_tokens - sums.tokens, prompt_tokens = prompt_tokens + sums.tokens,
        reserved_cost_micro = reserved_cost_micro - sums.cost, cost_micro = cost_micro + sums.cost
    FROM sums WHERE tenant_id = :tenant_id AND id = :task_id AND (sums.tokens > 0 OR sums.cost > 0)
)
SELECT EXISTS (SELECT 1 FROM model_calls WHERE tenant_id = :tenant_id AND key = :model_key) AS known
""")
"""What earlier attempts had reserved for the same call: their replies are lost, so they are charged their estimate."""

ASKED = sql("""
SELECT t.inputs, t.inputs_blob FROM model_calls AS m
JOIN turns AS t ON t.tenant_id = m.tenant_id AND t.agent_id = m.agent_id AND t.round = m.round AND t.turn = m.turn
WHERE m.tenant_id = :tenant_id AND m.key = :model_key AND m.fence = :fence
""")
"""The inputs of the turn of a call that this attempt has asked for."""


def results(only_if: str = "") -> str:
    """The CTEs that keep results, close their turn and note artifacts. `only_if` names a CTE: where it has no row,
    nothing is written."""
    given = f"{only_if}, " if only_if else ""
    also = f"FROM {only_if} " if only_if else ""
    return f"""
done AS (
    UPDATE tool_calls AS c SET result = r.result, result_blob = r.blob, ended_at = :now
    FROM {given}jsonb_to_recordset(CAST(:results AS jsonb)) AS r(key text, result jsonb, blob jsonb)
    WHERE c.tenant_id = :tenant_id AND c.agent_id = :agent_id AND c.round = :round AND c.turn = :done_turn
        AND c.key = r.key AND c.ended_at IS NULL
), kept AS (
    INSERT INTO artifacts (id, tenant_id, task_id, step_id, key, path, sha256, bytes, media_type, created_at)
    SELECT r.id, :tenant_id, :task_id, r.step_id, r.key, r.path, r.sha256, r.bytes, r.media_type, :now
    FROM {given}jsonb_to_recordset(CAST(:artifacts AS jsonb))
        AS r(id text, key text, step_id text, path text, sha256 text, bytes bigint, media_type text)
    ON CONFLICT (key) DO NOTHING
), closed AS (
    UPDATE turns SET ended_at = :now {also}
    WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND round = :round AND turn = :closes AND ended_at IS NULL
)"""


_EVENTS = """
INSERT INTO events (tenant_id, task_id, seq, type, at, agent_id, step_id, turn, data)
SELECT :tenant_id, :task_id, :first + r.n, r.type, :now, :agent_id, :step, r.turn, r.data
FROM jsonb_to_recordset(CAST(:events AS jsonb)) AS r(n int, type text, turn int, data jsonb)
ORDER BY r.n
"""

BEGIN = sql(f"""
WITH {results()}, opened AS (
    INSERT INTO turns (tenant_id, agent_id, round, turn, inputs, inputs_blob, started_at)
    SELECT :tenant_id, :agent_id, :round, :turn, CAST(:inputs AS jsonb), CAST(:inputs_blob AS jsonb), :now WHERE :opens
), intent AS (
    INSERT INTO model_calls (key, tenant_id, agent_id, round, turn, k, fence, tier, called_at)
    VALUES (:model_key, :tenant_id, :agent_id, :round, :turn, :k, :fence, :tier, :now)
    ON CONFLICT (key) DO UPDATE SET fence = excluded.fence, called_at = excluded.called_at
), reserved AS (
    INSERT INTO budget_reservations (tenant_id, key, fence, task_id, agent_id, tokens, cost_micro, reserved_at)
    VALUES (:tenant_id, :model_key, :fence, :task_id, :agent_id, :tokens, :cost, :now)
), agent AS (
    UPDATE agents SET activity = :activity, activity_at = :now, mail_read = :mail_read,
        turns = turns + CAST(:opens AS int), state = CASE WHEN :heard THEN 'running' ELSE state END,
        waiting_for = CASE WHEN :heard THEN NULL ELSE waiting_for END
    WHERE tenant_id = :tenant_id AND id = :agent_id
), task AS (
    UPDATE tasks SET last_seq = last_seq + :count, updated_at = :now, turns = turns + CAST(:opens AS int),
        reserved_tokens = reserved_tokens + :tokens, reserved_cost_micro = reserved_cost_micro + :cost,
        budget_warned = budget_warned OR :warned
    WHERE tenant_id = :tenant_id AND id = :task_id
) {_EVENTS}""")
"""T1: results of the turn before, the turn, its intent, its reservation."""

SETTLE = sql("""
WITH settled AS (
    UPDATE budget_reservations SET settled_at = :now
    WHERE tenant_id = :tenant_id AND key = :model_key AND fence = :fence AND settled_at IS NULL
    RETURNING tokens, cost_micro
), sums AS (
    SELECT coalesce(sum(tokens), 0) AS tokens, coalesce(sum(cost_micro), 0) AS cost FROM settled
)
UPDATE tasks SET last_seq = last_seq + :count, updated_at = :now,
    reserved_tokens = reserved_tokens - sums.tokens, reserved_cost_micro = reserved_cost_micro - sums.cost,
    prompt_tokens = prompt_tokens + :prompt + CASE WHEN :estimate THEN sums.tokens ELSE 0 END,
    cached_tokens = cached_tokens + :cached, completion_tokens = completion_tokens + :completion,
    cost_micro = cost_micro + :cost + CASE WHEN :estimate THEN sums.cost ELSE 0 END,
    status = CASE WHEN :resumed THEN :status ELSE status END,
    waiting_for = CASE WHEN :resumed THEN NULL ELSE waiting_for END
FROM sums WHERE tenant_id = :tenant_id AND id = :task_id
RETURNING last_seq, control_seq, cancel_requested_at IS NOT NULL AS cancel
""")
"""Settle one call's reservation and take event numbers."""

ANSWER = sql(f"""
WITH reply AS (
    UPDATE model_calls SET reply = CAST(:reply AS jsonb), reply_blob = CAST(:reply_blob AS jsonb),
        bad = CAST(:bad AS jsonb), request_sha256 = :request_sha256, answered_at = :now
    WHERE tenant_id = :tenant_id AND key = :model_key AND answered_at IS NULL
), failed AS (
    UPDATE turns SET failed = CAST(:failed AS jsonb), ended_at = :now
    WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND round = :round AND turn = :turn
        AND CAST(:failed AS jsonb) IS NOT NULL
), calls AS (
    INSERT INTO tool_calls (key, tenant_id, agent_id, round, turn, i, tool, fence, called_at)
    SELECT r.key, :tenant_id, :agent_id, :round, :turn, r.i, r.tool, :fence, :now
    FROM jsonb_to_recordset(CAST(:calls AS jsonb)) AS r(key text, i int, tool text)
), agent AS (
    UPDATE agents SET activity = :activity, activity_at = :now, state = 'running', waiting_for = NULL
    WHERE tenant_id = :tenant_id AND id = :agent_id
) {_EVENTS}""")
"""T2: the reply, its calls."""

OTHERS = sql("""
SELECT EXISTS (
    SELECT 1 FROM agents
    WHERE tenant_id = :tenant_id AND task_id = :task_id AND id <> :agent_id AND state = 'running'
) AS work
""")
"""Whether another agent of the task works. Asked behind the task's lock: of two that stop the later sees it."""

START = sql(f"""
WITH agent AS (
    UPDATE agents SET activity = :activity, activity_at = :now, state = 'running', waiting_for = NULL
    WHERE tenant_id = :tenant_id AND id = :agent_id
), begun AS (
    UPDATE tool_calls SET begun_fence = :fence
    WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND round = :round AND turn = :turn AND i = :begins
        AND ended_at IS NULL
), task AS (
    UPDATE tasks SET last_seq = last_seq + :count, updated_at = :now,
        status = CASE WHEN :resumed THEN :status ELSE status END,
        waiting_for = CASE WHEN :resumed THEN NULL ELSE waiting_for END
    WHERE tenant_id = :tenant_id AND id = :task_id
) {_EVENTS}""")
"""Calls go on."""

NUMBER = sql("""
UPDATE tasks SET last_seq = last_seq + :count, updated_at = :now
WHERE tenant_id = :tenant_id AND id = :task_id RETURNING last_seq
""")

TELL = sql(_EVENTS)

KEEP = sql(f"WITH {results()} {_EVENTS}")
"""Results without a next turn."""

PAUSE = sql(f"""
WITH {results()}, released AS (
    UPDATE budget_reservations SET settled_at = :now
    WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND settled_at IS NULL RETURNING tokens, cost_micro
), agent AS (
    UPDATE agents SET state = 'waiting', activity = :activity, activity_at = :now, waiting_for = :waiting_for
    WHERE tenant_id = :tenant_id AND id = :agent_id
), task AS (
    UPDATE tasks SET last_seq = last_seq + :count, updated_at = :now,
        reserved_tokens = reserved_tokens - (SELECT coalesce(sum(tokens), 0) FROM released),
        reserved_cost_micro = reserved_cost_micro - (SELECT coalesce(sum(cost_micro), 0) FROM released),
        status = CASE WHEN :waiting THEN 'waiting' ELSE status END,
        waiting_for = CASE WHEN :waiting THEN :waiting_for ELSE waiting_for END
    WHERE tenant_id = :tenant_id AND id = :task_id
) {_EVENTS}""")
"""The agent waits: what it had reserved was not used."""

END = sql(f"""
WITH {results()}, settled AS (
    UPDATE budget_reservations SET settled_at = :now
    WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND settled_at IS NULL RETURNING tokens, cost_micro
), round AS (
    UPDATE rounds SET ended_at = :now, reason = :reason, error = CAST(:error AS jsonb),
        outcome = CAST(:outcome AS jsonb), outcome_blob = CAST(:outcome_blob AS jsonb)
    WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND round = :round AND ended_at IS NULL
), agent AS (
    UPDATE agents SET state = 'finished', activity = :activity, activity_at = :now, waiting_for = NULL
    WHERE tenant_id = :tenant_id AND id = :agent_id
), task AS (
    UPDATE tasks SET last_seq = last_seq + :count, updated_at = :now,
        reserved_tokens = reserved_tokens - (SELECT coalesce(sum(tokens), 0) FROM settled),
        reserved_cost_micro = reserved_cost_micro - (SELECT coalesce(sum(cost_micro), 0) FROM settled),
        prompt_tokens = prompt_tokens
            + CASE WHEN :estimate THEN (SELECT coalesce(sum(tokens), 0) FROM settled) ELSE 0 END,
        cost_micro = cost_micro
            + CASE WHEN :estimate THEN (SELECT coalesce(sum(cost_micro), 0) FROM settled) ELSE 0 END
    WHERE tenant_id = :tenant_id AND id = :task_id
) {_EVENTS}""")
"""The round is over."""

RESUME = sql("""
UPDATE tasks SET status = :status, waiting_for = NULL
WHERE tenant_id = :tenant_id AND id = :task_id AND status = 'waiting'
RETURNING id
""")
"""An agent has heard what it waited for and works again."""
