"""How much card memory an account may hold at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "card_memory_limits"
down_revision = "saved_views"

_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add the column to users and groups; null is no limit."""
    for table in ("users", "groups"):
        op.add_column(table, sa.Column("limit_card_mib", _number, nullable=True))
