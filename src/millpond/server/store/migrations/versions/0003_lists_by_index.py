"""Lists are narrowed by an index: of users, of names, and of the queue in which a job was when it ended."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "lists_by_index"
down_revision = "queue_settings"

_AT_ONCE = 1_000


def upgrade() -> None:
    """Add the queue, fill it from the last looks of jobs that have ended, and add the indexes."""
    op.add_column("jobs", sa.Column("queue", sa.Text, nullable=True))
    jobs = sa.table("jobs", sa.column("id"), sa.column("info"), sa.column("queue"))
    connection = op.get_bind()
    change = jobs.update().where(jobs.c.id == sa.bindparam("job")).values(queue=sa.bindparam("within"))
    last = ""
    while True:
        query = sa.select(jobs.c.id, jobs.c.info).where(jobs.c.info.is_not(None), jobs.c.id > last)
        rows = connection.execute(query.order_by(jobs.c.id).limit(_AT_ONCE)).all()
        if not rows:
            break
        connection.execute(change, [{"job": row.id, "within": json.loads(row.info)["queue"]} for row in rows])
        last = rows[-1].id
    op.create_index("jobs_of_name", "jobs", ["name", "submitted_at"])
    op.create_index("jobs_of_user", "jobs", ["user", "submitted_at"])
    op.create_index("jobs_of_queue", "jobs", ["queue", "submitted_at"])
    op.create_index("jobs_of_user_in_queue", "jobs", ["user", "queue", "submitted_at"])
