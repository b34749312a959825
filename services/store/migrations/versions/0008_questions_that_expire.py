"""How long a question waits for its answer."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one."""
    op.add_column("messages", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))
