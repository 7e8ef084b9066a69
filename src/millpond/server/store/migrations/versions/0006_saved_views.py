"""Lists of jobs that people have named."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "saved_views"
down_revision = "reports"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "saved_views",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("user", sa.String(64), nullable=False),
        sa.Column("group", sa.String(64), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("query", sa.Text, nullable=False),
        sa.Column("by", sa.String(64), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
