"""What users are told of, and deliveries to them beside those to webhooks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "notifications"
down_revision = "energy"


def upgrade() -> None:
    """Make the table, and let deliveries have channels."""
    op.create_table(
        "notification_settings",
        sa.Column("user", sa.String(64), primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.add_column("deliveries", sa.Column("channel", sa.String(10), nullable=False, server_default="webhook"))
    op.add_column("deliveries", sa.Column("key", sa.String(400), nullable=False, server_default=""))
    op.create_index("deliveries_by_target", "deliveries", ["hook", "channel", "state"])
