"""How much accounts may hold on the server's disk."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "disk_limits"
down_revision = "user_numbers"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column to users and groups."""
    for table in ("users", "groups"):
        op.add_column(table, sa.Column("limit_disk_bytes", sa.BigInteger, nullable=True))


def downgrade() -> None:
    """Drop it."""
    for table in ("users", "groups"):
        op.drop_column(table, "limit_disk_bytes")
