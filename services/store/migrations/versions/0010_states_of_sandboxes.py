"""Checkpoints: what state the sandbox was in."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one."""
    op.add_column("checkpoints", sa.Column("state", JSONB(none_as_null=True), nullable=True))
