"""What is to be told to other programs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "deliveries"
down_revision = "usage"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "deliveries",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("hook", sa.String(120), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("notice", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("due_at", sa.Float, nullable=False),
        sa.Column("trouble", sa.Text, nullable=False),
    )
    op.create_index("deliveries_by_due", "deliveries", ["state", "due_at"])


def downgrade() -> None:
    """Drop it."""
    op.drop_table("deliveries")
