"""The queue of tasks: when one was given a place, and indexes for what is asked again and again."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_QUEUED = sa.text("admitted_at IS NULL AND ended_at IS NULL")


def upgrade() -> None:
    """From the revision before to this one."""
    op.add_column("tasks", sa.Column("admitted_at", sa.DateTime(timezone=True), nullable=True))
    op.execute(
        "UPDATE tasks SET admitted_at = s.started_at FROM task_starts s"
        " WHERE s.task_id = tasks.id AND s.started_at IS NOT NULL"
    )
    op.create_index("ix_tasks_queue", "tasks", ["tenant_id", "created_at", "id"], postgresql_where=_QUEUED)
    op.create_index(
        "ix_tasks_queue_deadline",
        "tasks",
        ["deadline_at"],
        postgresql_where=sa.text("admitted_at IS NULL AND ended_at IS NULL AND deadline_at IS NOT NULL"),
    )
    op.create_index(
        "ix_tasks_admitted", "tasks", ["id"], postgresql_where=sa.text("admitted_at IS NOT NULL AND ended_at IS NULL")
    )
    op.create_index("ix_tasks_served", "tasks", ["tenant_id", "admitted_at"])
    op.create_index(
        "ix_tasks_cancelling",
        "tasks",
        ["id"],
        postgresql_where=sa.text("cancel_requested_at IS NOT NULL AND ended_at IS NULL"),
    )
    op.create_index("ix_tasks_page_of_status", "tasks", ["tenant_id", "status", "created_at", "id"])
    op.drop_index("ix_tasks_open", "tasks")  # nothing asks by it
    op.create_index("ix_idempotency_age", "idempotency", ["created_at"])
