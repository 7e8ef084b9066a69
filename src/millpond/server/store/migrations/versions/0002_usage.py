"""Who has held how much for how long."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "usage"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the books."""
    op.create_table(
        "usage",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("job", sa.String(120), nullable=False),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("queue", sa.String(120), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("model", sa.String(120), nullable=False),
        sa.Column("gpu_milli", sa.BigInteger, nullable=False),
        sa.Column("cpu_milli", sa.BigInteger, nullable=False),
        sa.Column("memory_mib", sa.BigInteger, nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("until", sa.Float, nullable=True),
    )
    op.create_index("usage_by_end", "usage", ["until"])
    op.create_index("usage_by_job", "usage", ["job"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("usage")
