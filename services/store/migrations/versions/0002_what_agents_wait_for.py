"""What an agent waits for."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one."""
    op.add_column("agents", sa.Column("waiting_for", sa.String(length=32), nullable=True))
    op.create_index(
        "ix_agents_waiting", "agents", ["waiting_for"], unique=False, postgresql_where=sa.text("state = 'waiting'")
    )
