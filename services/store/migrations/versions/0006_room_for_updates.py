"""Room in the pages of the two rows that every turn rewrites: their new versions stay in the page, where the next
writer removes the old ones, and the indexes do not grow with the turns."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """From the revision before to this one. It holds for pages to come."""
    for table in ("tasks", "agents"):
        op.execute(f"ALTER TABLE {table} SET (fillfactor = 40)")
