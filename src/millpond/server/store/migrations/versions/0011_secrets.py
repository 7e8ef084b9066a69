"""Secrets of users, groups and the server, sealed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "secrets"
down_revision = "disk_limits"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "secrets",
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("owner", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("cipher", sa.String(20), nullable=False),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("by", sa.String(64), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("secrets")
