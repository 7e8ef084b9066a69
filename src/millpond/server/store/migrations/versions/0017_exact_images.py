"""Images of the catalogue know with which reference a registry gives exactly them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "exact_images"
down_revision = "image_logins"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Of those that are there it is not known."""
    op.add_column("images", sa.Column("exact", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("images", "exact")
