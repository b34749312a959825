"""The tables. `tenant_id` is in every one and in every query. A JSON column holds a versioned `Wire` model of at most
16 KiB; what is larger lies in S3 and the column's `*_blob` neighbour holds its `BlobRef`."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import postgresql

JSONB = postgresql.JSONB(none_as_null=True)
"""None is SQL's NULL: JSON's own null would count as a value in ``IS NOT NULL``."""

ROW_CAP_BYTES = 16 * 1024
"""What one JSON or text column may hold; the rest goes to S3 by digest."""

QUEUED = "admitted_at IS NULL AND ended_at IS NULL"
"""Which tasks wait for a place."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _tenant() -> "Column[str]":
    return Column("tenant_id", String(64), nullable=False)


def _time(name: str, *, nullable: bool = True) -> "Column[object]":
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _count(name: str) -> "Column[int]":
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


tenants = Table(
    "tenants",
    metadata,
    Column("tenant_id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    _time("created_at", nullable=False),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(64), primary_key=True),
    _tenant(),
    Column("name", Text, nullable=False),
    Column("key_sha256", String(64), nullable=False, unique=True),
    Column("scopes", JSONB, nullable=False),
    _time("created_at", nullable=False),
    _time("revoked_at"),
)

idempotency = Table(
    "idempotency",
    metadata,
    _tenant(),
    Column("key", String(255), nullable=False),
    Column("body_sha256", String(64), nullable=False),
    Column("status", Integer, nullable=False),
    Column("location", Text, nullable=False),
    Column("answer", JSONB, nullable=False),
    _time("created_at", nullable=False),
    PrimaryKeyConstraint("tenant_id", "key"),
    Index("ix_idempotency_age", "created_at"),
)

tasks = Table(
    "tasks",
    metadata,
    Column("id", String(64), primary_key=True),
    _tenant(),
    Column("epoch", Integer, nullable=False, server_default=text("0")),
    # what was asked; `spec` is the TaskSpec without the instruction
    Column("instruction", Text),
    Column("instruction_blob", JSONB),
    Column("instruction_excerpt", Text, nullable=False),
    Column("instruction_sha256", String(64), nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("tier", String(16), nullable=False),
    Column("metadata", JSONB, nullable=False),
    # where it is
    Column("status", String(16), nullable=False),
    Column("waiting_for", String(32)),
    Column("stop_reason", String(32)),
    Column("error", JSONB),
    Column("summary", Text),
    Column("plan_revision", Integer, nullable=False, server_default=text("0")),
    _time("created_at", nullable=False),
    _time("updated_at", nullable=False),
    # when it left the queue: from then on its workflow is started, and it holds a place until it ends
    _time("admitted_at"),
    _time("started_at"),
    _time("ended_at"),
    _time("deadline_at"),
    # numbering: events, and controls such as cancel (rows are the truth, signals only wake)
    _count("last_seq"),
    _count("control_seq"),
    _time("cancel_requested_at"),
    # what it may spend and has spent
    Column("tokens_limit", BigInteger),
    Column("cost_limit_micro", BigInteger),
    Column("turns_limit", BigInteger, nullable=False),
    _count("turns"),
    _count("prompt_tokens"),
    _count("cached_tokens"),
    _count("completion_tokens"),
    _count("cost_micro"),
    _count("reserved_tokens"),
    _count("reserved_cost_micro"),
    Column("budget_warned", Boolean, nullable=False, server_default=text("false")),
    Index("ix_tasks_page", "tenant_id", "created_at", "id"),
    Index("ix_tasks_page_of_status", "tenant_id", "status", "created_at", "id"),
    Index("ix_tasks_queue", "tenant_id", "created_at", "id", postgresql_where=text(QUEUED)),
    Index("ix_tasks_queue_deadline", "deadline_at", postgresql_where=text(f"{QUEUED} AND deadline_at IS NOT NULL")),
    Index("ix_tasks_admitted", "id", postgresql_where=text("admitted_at IS NOT NULL AND ended_at IS NULL")),
    Index("ix_tasks_served", "tenant_id", "admitted_at"),
    Index("ix_tasks_cancelling", "id", postgresql_where=text("cancel_requested_at IS NOT NULL AND ended_at IS NULL")),
)

task_starts = Table(
    "task_starts",
    metadata,
    Column("task_id", String(64), primary_key=True),
    _tenant(),
    _time("created_at", nullable=False),
    _time("started_at"),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
    Index("ix_task_starts_missing", "created_at", postgresql_where=text("started_at IS NULL")),
)

events = Table(
    "events",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    _tenant(),
    Column("task_id", String(64), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("type", String(48), nullable=False),
    _time("at", nullable=False),
    Column("agent_id", String(64)),
    Column("step_id", String(64)),
    Column("turn", Integer),
    Column("data", JSONB, nullable=False),
    _time("published_at"),
    UniqueConstraint("task_id", "seq"),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
    Index("ix_events_outbox", "id", postgresql_where=text("published_at IS NULL")),
)

plans = Table(
    "plans",
    metadata,
    _tenant(),
    Column("task_id", String(64), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("plan", JSONB),
    Column("plan_blob", JSONB),
    _time("created_at", nullable=False),
    PrimaryKeyConstraint("task_id", "epoch", "revision"),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
)

steps = Table(
    "steps",
    metadata,
    _tenant(),
    Column("task_id", String(64), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("step_id", String(64), nullable=False),
    Column("position", Integer, nullable=False),
    Column("title", Text, nullable=False),
    Column("depends_on", JSONB, nullable=False),
    Column("state", String(16), nullable=False),
    Column("round", Integer, nullable=False, server_default=text("0")),
    Column("report", JSONB),
    PrimaryKeyConstraint("task_id", "epoch", "revision", "step_id"),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
)

agents = Table(
    "agents",
    metadata,
    Column("id", String(64), primary_key=True),
    _tenant(),
    Column("task_id", String(64), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("role", String(16), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("step", String(64), nullable=False),
    Column("brief", JSONB),
    Column("brief_blob", JSONB),
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Column("round", Integer, nullable=False, server_default=text("0")),
    Column("state", String(16), nullable=False),
    Column("activity", Text, nullable=False),
    _time("activity_at", nullable=False),
    Column("waiting_for", String(32)),
    _count("turns"),
    _count("mail_sent"),
    _count("mail_read"),
    _time("created_at", nullable=False),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
    Index("ix_agents_task", "tenant_id", "task_id"),
    Index("ix_agents_waiting", "waiting_for", postgresql_where=text("state = 'waiting'")),
)

rounds = Table(
    "rounds",
    metadata,
    _tenant(),
    Column("agent_id", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    _time("started_at", nullable=False),
    _time("ended_at"),
    Column("reason", String(32)),
    Column("error", JSONB),
    # of a reviewer, whose agent's brief is that of its last round only
    Column("brief", JSONB),
    Column("brief_blob", JSONB),
    # the arguments of the control call that ended it
    Column("outcome", JSONB),
    Column("outcome_blob", JSONB),
    PrimaryKeyConstraint("agent_id", "round"),
    ForeignKeyConstraint(["agent_id"], ["agents.id"], ondelete="CASCADE"),
)

turns = Table(
    "turns",
    metadata,
    _tenant(),
    Column("agent_id", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("inputs", JSONB),
    Column("inputs_blob", JSONB),
    Column("failed", JSONB),
    _time("started_at", nullable=False),
    _time("ended_at"),
    PrimaryKeyConstraint("agent_id", "round", "turn"),
    ForeignKeyConstraint(["agent_id"], ["agents.id"], ondelete="CASCADE"),
)

model_calls = Table(
    "model_calls",
    metadata,
    Column("key", Text, primary_key=True),
    _tenant(),
    Column("agent_id", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("k", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("tier", String(16), nullable=False),
    Column("request_sha256", String(64)),
    Column("reply", JSONB),
    Column("reply_blob", JSONB),
    Column("bad", JSONB),
    _time("called_at", nullable=False),
    _time("answered_at"),
    UniqueConstraint("agent_id", "round", "turn", "k"),
    ForeignKeyConstraint(["agent_id"], ["agents.id"], ondelete="CASCADE"),
)

tool_calls = Table(
    "tool_calls",
    metadata,
    Column("key", Text, primary_key=True),
    _tenant(),
    Column("agent_id", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("i", Integer, nullable=False),
    Column("tool", String(64), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("result", JSONB),
    Column("result_blob", JSONB),
    # the attempt that began a call which cannot be repeated; null where none has
    Column("begun_fence", BigInteger),
    # while it had no result, the sandbox was lost in which it may have been begun
    _time("lost_at"),
    _time("called_at", nullable=False),
    _time("ended_at"),
    UniqueConstraint("agent_id", "round", "turn", "i"),
    ForeignKeyConstraint(["agent_id"], ["agents.id"], ondelete="CASCADE"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", String(64), primary_key=True),
    _tenant(),
    Column("task_id", String(64), nullable=False),
    Column("agent_id", String(64), nullable=False),
    Column("step_id", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("call_index", Integer, nullable=False),
    Column("call_key", Text, nullable=False),
    # the n-th question about this call, from 1; the last one counts
    Column("number", Integer, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("tool", String(64), nullable=False),
    Column("arguments", Text, nullable=False),
    Column("arguments_sha256", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    _time("requested_at", nullable=False),
    _time("expires_at", nullable=False),
    _time("decided_at"),
    Column("actor", String(128)),
    Column("note", Text),
    UniqueConstraint("call_key", "number"),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
    ForeignKeyConstraint(["agent_id"], ["agents.id"], ondelete="CASCADE"),
    Index("ix_approvals_page", "tenant_id", "requested_at", "id"),
    Index("ix_approvals_task", "tenant_id", "task_id"),
    Index("ix_approvals_agent", "agent_id"),
    Index("ix_approvals_pending", "expires_at", postgresql_where=text("state = 'pending'")),
)

budget_reservations = Table(
    "budget_reservations",
    metadata,
    _tenant(),
    Column("key", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("task_id", String(64), nullable=False),
    Column("agent_id", String(64), nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("cost_micro", BigInteger, nullable=False),
    _time("reserved_at", nullable=False),
    _time("settled_at"),
    PrimaryKeyConstraint("key", "fence"),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
    Index("ix_budget_reservations_open", "agent_id", postgresql_where=text("settled_at IS NULL")),
)

ledger_transactions = Table(
    "ledger_transactions",
    metadata,
    Column("key", Text, primary_key=True),
    _tenant(),
    Column("agent_id", String(64), nullable=False),
    _time("at", nullable=False),
    ForeignKeyConstraint(["agent_id"], ["agents.id"], ondelete="CASCADE"),
)

messages = Table(
    "messages",
    metadata,
    Column("id", String(64), primary_key=True),
    # the order in which they were written; per sender also that in which they were committed
    Column("n", BigInteger, Identity(), nullable=False),
    _tenant(),
    Column("task_id", String(64), nullable=False),
    # to whom: an agent (which may not be born yet), or nobody's mailbox where it goes to a person
    Column("agent_id", String(64)),
    Column("recipient", String(64), nullable=False),
    Column("seq", BigInteger),
    Column("kind", String(16), nullable=False),
    Column("sender", String(64), nullable=False),
    Column("sender_id", String(64)),
    Column("text", Text, nullable=False),
    Column("reply_to", String(64)),
    # of a question: until when its asker waits; null is for ever
    _time("expires_at"),
    _time("sent_at", nullable=False),
    _time("published_at"),
    _time("delivered_at"),
    _time("read_at"),
    UniqueConstraint("agent_id", "seq"),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
    Index("ix_messages_page", "tenant_id", "task_id", "n"),
    Index("ix_messages_outbox", "n", postgresql_where=text("published_at IS NULL")),
    Index("ix_messages_undelivered", "agent_id", postgresql_where=text("delivered_at IS NULL")),
    Index("uq_messages_answer", "reply_to", unique=True, postgresql_where=text("kind = 'answer'")),
)

checks = Table(
    "checks",
    metadata,
    _tenant(),
    Column("task_id", String(64), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("round", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("result", JSONB, nullable=False),
    PrimaryKeyConstraint("task_id", "epoch", "revision", "round", "position"),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
)

sandboxes = Table(
    "sandboxes",
    metadata,
    Column("id", String(64), primary_key=True),
    _tenant(),
    Column("task_id", String(64), nullable=False),
    Column("purpose", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("backend", String(32), nullable=False),
    # the first of those that were made one in place of the other, null for itself; `fence` counts them from 1
    Column("origin", String(64)),
    # what it was made from, null for what a first one is made from
    Column("snapshot_id", String(64)),
    _time("created_at", nullable=False),
    _time("ended_at"),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
    Index("ix_sandboxes_task", "tenant_id", "task_id"),
)

# what a lost sandbox is made again from; of those that are no checkpoint only the last is kept, while the task lasts
snapshots = Table(
    "snapshots",
    metadata,
    Column("id", String(64), primary_key=True),
    # the order in which they were noted
    Column("n", BigInteger, Identity(), nullable=False),
    _tenant(),
    Column("task_id", String(64), nullable=False),
    # of the first of the sandboxes that were made one in place of the other
    Column("origin", String(64), nullable=False),
    Column("checkpoint_id", String(64)),
    # what is in it: all that was done up to and with this turn
    Column("step_id", String(64)),
    _count("round"),
    _count("turn"),
    _time("taken_at", nullable=False),
    Column("manifest_sha256", String(64), nullable=False),
    Column("manifest_bytes", BigInteger, nullable=False),
    _time("damaged_at"),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
    Index("ix_snapshots_origin", "tenant_id", "task_id", "origin"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("id", String(64), primary_key=True),
    _tenant(),
    Column("task_id", String(64), nullable=False),
    Column("step_id", String(64), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("round", Integer, nullable=False),
    Column("sandbox_id", String(64), nullable=False),
    Column("manifest_sha256", String(64), nullable=False),
    Column("manifest_bytes", BigInteger, nullable=False),
    _count("files"),
    _count("folders"),
    _count("links"),
    _count("bytes"),
    _count("added_bytes"),
    Column("state", JSONB),
    _time("created_at", nullable=False),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
    Index("ix_checkpoints_task", "tenant_id", "task_id", "created_at"),
)

files = Table(
    "files",
    metadata,
    Column("id", String(64), primary_key=True),
    _tenant(),
    Column("name", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    _time("created_at", nullable=False),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("id", String(64), primary_key=True),
    _tenant(),
    Column("task_id", String(64), nullable=False),
    Column("step_id", String(64)),
    Column("key", Text, nullable=False, unique=True),
    Column("path", Text, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("media_type", String(128), nullable=False),
    _time("created_at", nullable=False),
    ForeignKeyConstraint(["task_id"], ["tasks.id"], ondelete="CASCADE"),
    Index("ix_artifacts_task", "tenant_id", "task_id", "created_at"),
)
