"""Who leads, where several servers can reach the database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "leadership"
down_revision = "accounts"
branch_labels = None
depends_on = None

_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the table; its one row comes with the first leader."""
    op.create_table(
        "leadership",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", _number, nullable=False),
        sa.Column("url", sa.String(400), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("boot_id", sa.String(64), nullable=False),
        sa.Column("pid", _number, nullable=False),
        sa.Column("state_dir", sa.Text, nullable=False),
    )
