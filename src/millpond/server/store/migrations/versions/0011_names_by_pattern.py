"""An index of jobs by time with all that lists of them are filtered by, so that no row is read that is not listed."""

from __future__ import annotations

from alembic import op

revision = "names_by_pattern"
down_revision = "webhooks"


def upgrade() -> None:
    """Widen the index."""
    op.drop_index("jobs_by_parent", "jobs")
    op.create_index("jobs_by_parent", "jobs", ["parent", "submitted_at", "name", "user", "queue", "state"])
