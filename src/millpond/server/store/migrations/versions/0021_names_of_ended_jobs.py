"""Ended jobs are found by their user and name through an index."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "names_of_ended_jobs"
down_revision = "group_invitations"
branch_labels = None
depends_on = None

_ROWS_AT_ONCE = 1_000


def upgrade() -> None:
    """Add the column, fill it from the last looks of jobs, and make the index."""
    op.add_column("jobs", sa.Column("name", sa.Text, nullable=True))
    jobs = sa.table("jobs", sa.column("id"), sa.column("info"), sa.column("name"))
    connection = op.get_bind()
    ended = sa.select(jobs.c.id, jobs.c.info).where(jobs.c.info.is_not(None)).order_by(jobs.c.id).limit(_ROWS_AT_ONCE)
    named = jobs.update().where(jobs.c.id == sa.bindparam("job")).values(name=sa.bindparam("called"))
    last = ""
    while rows := connection.execute(ended.where(jobs.c.id > last)).all():
        connection.execute(named, [{"job": row.id, "called": json.loads(row.info)["name"]} for row in rows])
        last = rows[-1].id
    op.create_index("jobs_by_name", "jobs", ["name", "parent", "user", "submitted_at"])


def downgrade() -> None:
    """Drop both."""
    op.drop_index("jobs_by_name", "jobs")
    op.drop_column("jobs", "name")
