"""Accounts count how often what their browsers were given became void."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "pass_epochs"
down_revision = "server_identity"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the count."""
    op.add_column("users", sa.Column("pass_epoch", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("users", "pass_epoch")
