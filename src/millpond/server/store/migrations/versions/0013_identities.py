"""Who the owners of accounts are to OpenID Connect providers; memberships know by whose word they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "identities"
down_revision = "revisions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table and the column."""
    op.add_column("members", sa.Column("issuer", sa.String(300), nullable=False, server_default=""))
    op.create_table(
        "identities",
        sa.Column("issuer", sa.String(300), primary_key=True),
        sa.Column("subject", sa.String(255), primary_key=True),
        sa.Column("user", sa.String(64), nullable=False, unique=True),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("makes_admin", sa.Boolean, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("identities")
    op.drop_column("members", "issuer")
