"""Messages on their way: written by their sender, published, delivered, read."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one. Messages that are there were delivered when they were sent."""
    op.drop_constraint("fk_messages_agent_id", "messages", type_="foreignkey")
    op.alter_column("messages", "agent_id", existing_type=sa.String(length=64), nullable=True)
    op.alter_column("messages", "seq", existing_type=sa.BigInteger(), nullable=True)
    op.add_column("messages", sa.Column("n", sa.BigInteger(), sa.Identity(), nullable=False))
    for name in ("recipient", "sender_id", "reply_to"):
        op.add_column("messages", sa.Column(name, sa.String(length=64), nullable=True))
    for name in ("published_at", "delivered_at", "read_at"):
        op.add_column("messages", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.execute("""
        UPDATE messages AS m SET recipient = CASE a.role WHEN 'planner' THEN 'planner' WHEN 'executor' THEN a.step
                ELSE 'reviewer:' || a.step END,
            published_at = m.sent_at, delivered_at = m.sent_at,
            read_at = CASE WHEN m.seq <= a.mail_read THEN m.sent_at END
        FROM agents AS a WHERE a.id = m.agent_id
    """)
    op.alter_column("messages", "recipient", existing_type=sa.String(length=64), nullable=False)
    op.create_foreign_key("fk_messages_task_id", "messages", "tasks", ["task_id"], ["id"], ondelete="CASCADE")
    op.create_index("ix_messages_page", "messages", ["tenant_id", "task_id", "n"])
    op.create_index("ix_messages_outbox", "messages", ["n"], postgresql_where=sa.text("published_at IS NULL"))
    op.create_index(
        "ix_messages_undelivered", "messages", ["agent_id"], postgresql_where=sa.text("delivered_at IS NULL")
    )
    op.create_index(
        "uq_messages_answer", "messages", ["reply_to"], unique=True, postgresql_where=sa.text("kind = 'answer'")
    )
