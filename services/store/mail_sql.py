"""The statements by which messages are written, numbered into mailboxes, and read. The agent's row is locked before."""

from services.store.ledger_sql import sql

SEND = sql("""
INSERT INTO messages (id, tenant_id, task_id, agent_id, recipient, kind, sender, sender_id, text, reply_to, expires_at,
    sent_at, delivered_at)
SELECT r.id, :tenant_id, :task_id, r.agent_id, r.recipient, r.kind, :sender, :sender_id, r.text, r.reply_to,
    CAST(:now AS timestamptz) + make_interval(secs => r.expires_s), :now,
    CASE WHEN r.agent_id IS NULL THEN CAST(:now AS timestamptz) END
FROM jsonb_to_recordset(CAST(:messages AS jsonb))
    AS r(i int, id text, agent_id text, recipient text, kind text, text text, reply_to text, expires_s float8)
ORDER BY r.i
ON CONFLICT (id) DO NOTHING RETURNING id
""")
"""Write messages, each once. What goes to a person has no mailbox to get to."""

NUMBER = sql("""
WITH due AS (
    SELECT id, row_number() OVER (ORDER BY n) AS k FROM messages
    WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND delivered_at IS NULL
), box AS (
    UPDATE agents SET mail_sent = mail_sent + (SELECT count(*) FROM due)
    WHERE tenant_id = :tenant_id AND id = :agent_id AND EXISTS (SELECT 1 FROM due)
    RETURNING mail_sent - (SELECT count(*) FROM due) AS before
)
UPDATE messages SET seq = box.before + due.k, delivered_at = :now
FROM due, box WHERE messages.id = due.id RETURNING messages.id
""")
"""Number what waits for an agent into its mailbox, in the order in which it was written. A statement of its own behind
the lock: it has to see what a delivery that held the lock before has done."""

ADOPT = sql("""
UPDATE messages SET agent_id = :agent_id, seq = NULL, delivered_at = NULL
WHERE tenant_id = :tenant_id AND task_id = :task_id AND recipient = :recipient AND read_at IS NULL
    AND agent_id <> :agent_id
""")
"""What was written to this name before its present bearer was born: to one of an earlier plan that never read it."""

READ = sql("""
UPDATE messages SET read_at = :now
WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND seq > :mail_read AND read_at IS NULL
""")
"""Messages enter their reader's context. T1 reads all there are."""

CAME = sql("""
SELECT CASE WHEN m.kind = 'answer' THEN 'answer' WHEN q.expires_at <= m.sent_at THEN 'expired' ELSE 'gone' END AS what
FROM messages AS m JOIN messages AS q ON q.tenant_id = m.tenant_id AND q.id = m.reply_to
WHERE m.tenant_id = :tenant_id AND m.reply_to = :message_id AND m.kind IN ('answer', 'notice')
ORDER BY m.kind LIMIT 1
""")
"""What has come of a question: an answer goes before a notice."""
