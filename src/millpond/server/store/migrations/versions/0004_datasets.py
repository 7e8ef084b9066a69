"""Named datasets with versions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "datasets"
down_revision = "deliveries"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "datasets",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("files", sa.Integer, nullable=False),
        sa.Column("size", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("removed", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("datasets")
