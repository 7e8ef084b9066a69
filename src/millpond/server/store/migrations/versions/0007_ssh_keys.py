"""Public keys by which users come in through SSH."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "ssh_keys"
down_revision = "leadership"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "ssh_keys",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("user", sa.String(64), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("blob", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("used_at", sa.Float, nullable=True),
    )
