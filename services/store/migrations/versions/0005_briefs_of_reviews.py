"""The brief of each round of a reviewer."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one."""
    for name in ("brief", "brief_blob"):
        op.add_column("rounds", sa.Column(name, postgresql.JSONB(astext_type=sa.Text()), nullable=True))
