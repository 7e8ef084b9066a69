"""The pool's own short history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "time_series"
down_revision = "lists_by_index"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "time_series",
        sa.Column("subject", sa.String(20), primary_key=True),
        sa.Column("step_s", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
        sa.Column("samples", sa.Integer, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
