"""Webhooks that were added while the server ran."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "webhooks"
down_revision = "notifications"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "webhooks",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("by", sa.String(64), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
