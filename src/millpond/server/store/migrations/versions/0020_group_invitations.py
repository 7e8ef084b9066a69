"""Leads invite people into their groups, who accept or decline."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "group_invitations"
down_revision = "pass_epochs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "group_invitations",
        sa.Column("group", sa.String(64), primary_key=True),
        sa.Column("user", sa.String(64), primary_key=True),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("by", sa.String(64), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("group_invitations")
