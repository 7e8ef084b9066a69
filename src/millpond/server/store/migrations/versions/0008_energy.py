"""The energy that jobs drew on their cards, what it cost and emitted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "energy"
down_revision = "card_memory_limits"

_COLUMNS = ("known_gpu_s", "energy_j", "declared_j", "cost", "priced_j", "co2_g", "carbon_j")


def upgrade() -> None:
    """Add the columns; of what was measured before, no energy is known."""
    for name in _COLUMNS:
        op.add_column("card_use", sa.Column(name, sa.Float, nullable=False, server_default="0"))
