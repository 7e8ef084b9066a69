"""The catalogue of images; datasets say who sees them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "images"
down_revision = "identities"
branch_labels = None
depends_on = None

_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_name = sa.String(64)
_visibility = sa.String(20)


def upgrade() -> None:
    """Create the table; what everybody saw until now, everybody goes on seeing."""
    op.create_table(
        "images",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("tag", sa.String(128), primary_key=True),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("digest", sa.String(80), nullable=False),
        sa.Column("size", _number, nullable=False),
        sa.Column("user", _name, nullable=False),
        sa.Column("group", _name, nullable=False),
        sa.Column("visibility", _visibility, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.add_column("datasets", sa.Column("group", _name, nullable=False, server_default=""))
    op.add_column("datasets", sa.Column("visibility", _visibility, nullable=False, server_default="everyone"))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("datasets", "visibility")
    op.drop_column("datasets", "group")
    op.drop_table("images")
