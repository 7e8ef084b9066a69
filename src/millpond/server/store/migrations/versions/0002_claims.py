"""What a cycle decides beside its decisions: places that are kept for jobs until others have left."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "claims"
down_revision = "first_tables"


def upgrade() -> None:
    """Add the table."""
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "claims",
        sa.Column("seq", number, primary_key=True, autoincrement=False),
        sa.Column("data", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("claims")
