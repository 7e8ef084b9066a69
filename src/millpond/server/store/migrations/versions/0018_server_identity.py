"""A database tells whose it is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "server_identity"
down_revision = "exact_images"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; its one row comes with the next start."""
    op.create_table(
        "server_identity",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("server", sa.String(64), nullable=False),
        sa.Column("state_dir", sa.Text, nullable=False),
        sa.Column("formerly", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("server_identity")
