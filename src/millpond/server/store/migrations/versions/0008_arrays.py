"""Arrays and their members, and the trials of sweeps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "arrays"
down_revision = "ssh_keys"
branch_labels = None
depends_on = None

_job = sa.String(120)


def upgrade() -> None:
    """Let jobs be arrays and members of arrays."""
    op.add_column("jobs", sa.Column("parent", _job, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("members", sa.Integer, nullable=False, server_default="0"))
    op.create_index("jobs_by_parent", "jobs", ["parent", "submitted_at"])
    op.create_table(
        "trials",
        sa.Column("job", _job, primary_key=True),
        sa.Column("parent", _job, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
    )
    op.create_index("trials_by_parent", "trials", ["parent"])


def downgrade() -> None:
    """Drop them."""
    op.drop_table("trials")
    op.drop_index("jobs_by_parent", "jobs")
    op.drop_column("jobs", "members")
    op.drop_column("jobs", "parent")
