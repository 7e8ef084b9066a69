"""Usage by group, what was made of cards, and how long jobs waited: what reports are made of."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "reports"
down_revision = "time_series"

_AT_ONCE = 1_000


def upgrade() -> None:
    """Make the tables, and fill in what earlier versions wrote down elsewhere."""
    op.add_column("usage", sa.Column("group", sa.String(64), nullable=False, server_default=""))
    jobs = sa.table("jobs", *map(sa.column, ("id", "user", "group", "submitted_at", "ended_at", "info", "members")))
    usage = sa.table("usage", sa.column("job"), sa.column("group"))
    group = sa.select(jobs.c.group).where(jobs.c.id == usage.c.job).scalar_subquery()
    op.execute(usage.update().values(group=sa.func.coalesce(group, "")))
    op.create_table(
        "card_use",
        sa.Column("job", sa.String(120), primary_key=True),
        sa.Column("model", sa.String(120), primary_key=True),
        sa.Column("day", sa.Float, primary_key=True),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("queue", sa.String(120), nullable=False),
        sa.Column("group", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.Column("measured_gpu_s", sa.Float, nullable=False),
        sa.Column("busy_gpu_s", sa.Float, nullable=False),
        sa.Column("idle_gpu_s", sa.Float, nullable=False),
    )
    op.create_index("card_use_by_end", "card_use", ["until"])
    waits = op.create_table(
        "start_waits",
        sa.Column("job", sa.String(120), primary_key=True),
        sa.Column("user", sa.String(120), nullable=False),
        sa.Column("queue", sa.String(120), nullable=False),
        sa.Column("group", sa.String(64), nullable=False),
        sa.Column("gpu_milli", sa.BigInteger, nullable=False),
        sa.Column("submitted_at", sa.Float, nullable=False),
        sa.Column("started_at", sa.Float, nullable=True),
        sa.Column("ended_at", sa.Float, nullable=False),
    )
    op.create_index("start_waits_by_time", "start_waits", ["submitted_at"])
    _fill(waits, jobs)


def _fill(waits: sa.Table, jobs: sa.TableClause) -> None:
    connection, last = op.get_bind(), ""
    while True:
        ended = (jobs.c.info.is_not(None), jobs.c.members == 0, jobs.c.id > last)
        found = connection.execute(sa.select(jobs).where(*ended).order_by(jobs.c.id).limit(_AT_ONCE)).all()
        if not found:
            return
        last = found[-1].id
        rows = []
        for row in found:
            info = json.loads(row.info)
            rows.append(
                {
                    "job": row.id,
                    "user": row.user,
                    "queue": info["queue"],
                    "group": row.group,
                    "gpu_milli": info.get("gpu_milli", 0),
                    "submitted_at": row.submitted_at,
                    "started_at": info.get("first_started_at"),
                    "ended_at": row.ended_at,
                }
            )
        op.bulk_insert(waits, rows)
