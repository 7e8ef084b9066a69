"""Images of the catalogue say with which secret their registry lets us in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "image_logins"
down_revision = "whole_characters"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Until now none took a login."""
    op.add_column("images", sa.Column("login", sa.String(100), nullable=False, server_default=""))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("images", "login")
