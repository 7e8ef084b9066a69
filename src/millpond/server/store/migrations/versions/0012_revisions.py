"""Revisions of services."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "revisions"
down_revision = "secrets"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "revisions",
        sa.Column("service", sa.String(120), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("job", sa.String(120), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("group", sa.String(64), nullable=False, server_default=""),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("phase", sa.String(20), nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("percent", sa.Float, nullable=False),
        sa.Column("target", sa.Integer, nullable=False),
        sa.Column("before", sa.Integer, nullable=False),
        sa.Column("told", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("revisions")
