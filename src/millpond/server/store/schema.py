"""The tables. Records are JSON text: the log is read back whole and in order, never searched by content."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, MetaData, String, Table, Text

from millpond.model.workloads import LONGEST_JOB_ID

metadata = MetaData()

_JOB = String(LONGEST_JOB_ID)
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

events = Table(
    "events",
    metadata,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("type", String(40), nullable=False),
    Column("job", _JOB, nullable=False, default=""),
    Column("data", Text, nullable=False),
    Index("events_by_job", "job", "seq"),
)
"""The scheduler's log in the order in which it was handled."""

decisions = Table(
    "decisions",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=False),
    Column("seq", _NUMBER, nullable=False),
    Column("at", Float, nullable=False),
    Column("type", String(40), nullable=False),
    Column("job", _JOB, nullable=False),
    Column("data", Text, nullable=False),
    Index("decisions_by_job", "job", "id"),
    Index("decisions_by_seq", "seq"),
)
"""What was decided; ``seq`` is that of the tick in the log."""

snapshots = Table(
    "snapshots",
    metadata,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("version", String(40), nullable=False),
    Column("data", Text, nullable=False),
)
"""The scheduler's whole state after the log entry ``seq``."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", _JOB, primary_key=True),
    Column("user", String(120), nullable=False),
    Column("submitted_at", Float, nullable=False),
    Column("document", Text, nullable=False),
    Column("state", String(20), nullable=False),
    Column("ended_at", Float, nullable=True),
    Column("info", Text, nullable=True),
    Index("jobs_by_time", "submitted_at"),
    Index("jobs_by_state", "state", "submitted_at"),
)
"""Every job ever submitted; ``state`` is ``live`` until it ends, ``info`` is what it looked like then."""

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", String(200), primary_key=True),
    Column("job", _JOB, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("at", Float, nullable=False),
)
"""Submissions that were answered, so that repeating one gives the same job."""

usage = Table(
    "usage",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("job", _JOB, nullable=False),
    Column("user", String(120), nullable=False),
    Column("queue", String(120), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("model", String(120), nullable=False),
    Column("gpu_milli", BigInteger, nullable=False),
    Column("cpu_milli", BigInteger, nullable=False),
    Column("memory_mib", BigInteger, nullable=False),
    Column("since", Float, nullable=False),
    Column("until", Float, nullable=True),
    Index("usage_by_end", "until"),
    Index("usage_by_job", "job"),
)
"""Stretches of time in which a job held the same; ``until`` is empty while it still does. See ``server.usage``."""

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", _NUMBER, primary_key=True, autoincrement=True),
    Column("hook", String(120), nullable=False),
    Column("at", Float, nullable=False),
    Column("notice", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("state", String(20), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("due_at", Float, nullable=False),
    Column("trouble", Text, nullable=False),
    Index("deliveries_by_due", "state", "due_at"),
)
"""What is to be told to webhooks, and what became of it. See ``server.webhooks``."""

datasets = Table(
    "datasets",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("digest", String(64), nullable=False),
    Column("files", Integer, nullable=False),
    Column("size", _NUMBER, nullable=False),
    Column("user", String(120), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("removed", Boolean, nullable=False),
)
"""Named data: every version ever put; ``digest`` is that of its snapshot."""
