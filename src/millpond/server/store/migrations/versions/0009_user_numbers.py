"""Numbers under which the tasks of users run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "user_numbers"
down_revision = "arrays"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "user_numbers",
        sa.Column("user", sa.String(64), primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False, unique=True),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("user_numbers")
