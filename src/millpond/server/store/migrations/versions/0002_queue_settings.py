"""What queues say, as it was changed last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "queue_settings"
down_revision = "first_release"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "queue_settings",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("applied", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("by", sa.String(64), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
