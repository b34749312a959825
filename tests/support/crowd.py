"""A database as it looks after months: tens of thousands of tasks of several tenants, and what belongs to them."""

import asyncpg

TENANTS = 8
TASKS, EVENTS_EACH = 20_000, 10
_STATEMENTS = (
    # eight in ten have ended, a hundred are under way, the others wait in the queue
    f"""
    INSERT INTO tasks (id, tenant_id, instruction_excerpt, instruction_sha256, spec, tier, metadata, status,
        waiting_for, stop_reason, created_at, updated_at, admitted_at, started_at, ended_at, deadline_at,
        cancel_requested_at, last_seq, turns_limit)
    SELECT 'crowd_' || lpad(n::text, 8, '0'), 'crowd' || n % {TENANTS}, 'do it', repeat('0', 64),
        '{{"limits": {{}}, "checks": []}}', 'replay', '{{}}',
        CASE WHEN n % 10 < 7 THEN 'completed' WHEN n % 10 = 7 THEN 'failed'
             WHEN n % 200 = 88 THEN 'running' ELSE 'queued' END,
        CASE WHEN n % 10 > 7 AND n % 200 <> 88 THEN 'slot' END,
        CASE WHEN n % 10 < 7 THEN 'completed' WHEN n % 10 = 7 THEN 'rejected' END,
        at, at, CASE WHEN n % 10 < 8 OR n % 200 = 88 THEN at END, CASE WHEN n % 10 < 8 OR n % 200 = 88 THEN at END,
        CASE WHEN n % 10 < 8 THEN at + interval '1 minute' END,
        CASE WHEN n % 2 = 0 THEN at + interval '1 year' END,
        CASE WHEN n % 1000 = 88 THEN at END, {EVENTS_EACH}, 500
    FROM (SELECT n, now() - make_interval(secs => {TASKS} - n) AS at FROM generate_series(1, {TASKS}) AS n) AS numbered
    """,
    """
    INSERT INTO task_starts (task_id, tenant_id, created_at, started_at)
    SELECT id, tenant_id, created_at, admitted_at FROM tasks WHERE id LIKE 'crowd%'
    """,
    f"""
    INSERT INTO events (tenant_id, task_id, seq, type, at, data, published_at)
    SELECT tenant_id, id, seq, 'step.started', created_at, '{{"type": "step.started", "title": "x", "round": 1}}',
        CASE WHEN seq = {EVENTS_EACH} AND id LIKE '%000' THEN NULL ELSE created_at END
    FROM tasks, generate_series(1, {EVENTS_EACH}) AS seq WHERE id LIKE 'crowd%'
    """,
    """
    INSERT INTO agents (id, tenant_id, task_id, epoch, role, revision, step, state, activity, activity_at, created_at,
        round, waiting_for)
    SELECT 'agent_' || id, tenant_id, id, 0, 'executor', 1, 's1', CASE WHEN id LIKE '%88' THEN 'waiting' ELSE 'finished'
        END, '', created_at, created_at, 1, CASE WHEN id LIKE '%88' THEN 'agent' END
    FROM tasks WHERE id LIKE 'crowd%'
    """,
    """
    INSERT INTO budget_reservations (tenant_id, key, fence, task_id, agent_id, tokens, cost_micro, reserved_at,
        settled_at)
    SELECT tenant_id, id, 1, id, 'agent_' || id, 1, 1, created_at, CASE WHEN id NOT LIKE '%88' THEN created_at END
    FROM tasks WHERE id LIKE 'crowd%'
    """,
    """
    INSERT INTO idempotency (tenant_id, key, body_sha256, status, location, answer, created_at)
    SELECT tenant_id, id, instruction_sha256, 202, '/', '{}', created_at FROM tasks WHERE id LIKE 'crowd%'
    """,
)


async def fill(conn: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Write it all, in a few seconds; needs a superuser. Statistics are made, as autovacuum would."""
    await conn.execute("SET session_replication_role = replica")  # no check of each foreign key
    for statement in _STATEMENTS:
        await conn.execute(statement)
    await conn.execute("SET session_replication_role = origin")
    await conn.execute("VACUUM ANALYZE")
