"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create them."""
    op.create_table(
        "events",
        sa.Column("seq", _number, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("type", sa.String(40), nullable=False),
        sa.Column("job", sa.String(120), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_index("events_by_job", "events", ["job", "seq"])
    op.create_table(
        "decisions",
        sa.Column("id", _number, primary_key=True, autoincrement=False),
        sa.Column("seq", _number, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("type", sa.String(40), nullable=False),
        sa.Column("job", sa.String(120), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_index("decisions_by_job", "decisions", ["job", "id"])
    op.create_index("decisions_by_seq", "decisions", ["seq"])
    op.create_table(
        "snapshots",
        sa.Column("seq", _number, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("version", sa.String(40), nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(120), primary_key=True),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("submitted_at", sa.Float, nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("ended_at", sa.Float, nullable=True),
        sa.Column("info", sa.Text, nullable=True),
    )
    op.create_index("jobs_by_time", "jobs", ["submitted_at"])
    op.create_index("jobs_by_state", "jobs", ["state", "submitted_at"])
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("job", sa.String(120), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    for table in ("idempotency_keys", "jobs", "snapshots", "decisions", "events"):
        op.drop_table(table)
