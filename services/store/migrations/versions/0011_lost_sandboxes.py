"""Lost sandboxes: what they are made again from, and the calls that were under way in them."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one."""
    op.create_table(
        "snapshots",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("n", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=False),
        sa.Column("task_id", sa.String(length=64), nullable=False),
        sa.Column("origin", sa.String(length=64), nullable=False),
        sa.Column("checkpoint_id", sa.String(length=64), nullable=True),
        sa.Column("step_id", sa.String(length=64), nullable=True),
        sa.Column("round", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("turn", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("manifest_sha256", sa.String(length=64), nullable=False),
        sa.Column("manifest_bytes", sa.BigInteger(), nullable=False),
        sa.Column("damaged_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_snapshots_task_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snapshots")),
    )
    op.create_index("ix_snapshots_origin", "snapshots", ["tenant_id", "task_id", "origin"])
    op.add_column("sandboxes", sa.Column("origin", sa.String(length=64), nullable=True))
    op.add_column("sandboxes", sa.Column("snapshot_id", sa.String(length=64), nullable=True))
    op.add_column("tool_calls", sa.Column("lost_at", sa.DateTime(timezone=True), nullable=True))
