"""Removing from the store what is too old: whole jobs with their histories, never what a restart would replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from millpond.server.store import schema

_LIVE: Final = "live"


def forgettable(connection: sa.Connection, before: float, most: int) -> list[str]:
    """Jobs that ended before an instant, the first first, and that no restart would replay any more."""
    jobs, events, snapshots = schema.jobs, schema.events, schema.snapshots
    replayed_from = connection.execute(sa.select(sa.func.min(snapshots.c.seq))).scalar_one_or_none() or 0
    replayed = sa.select(events.c.job).where(events.c.job == jobs.c.id, events.c.seq > replayed_from).exists()
    query = sa.select(jobs.c.id).where(jobs.c.ended_at < before, jobs.c.state != _LIVE, ~replayed)
    return list(connection.execute(query.order_by(jobs.c.ended_at).limit(most)).scalars())


def forget(connection: sa.Connection, jobs: Sequence[str]) -> None:
    """Drop jobs that ``forgettable`` named. What they used stays in the books."""
    tables = ((schema.jobs, "id"), (schema.events, "job"), (schema.decisions, "job"), (schema.idempotency_keys, "job"))
    for table, column in tables:
        connection.execute(table.delete().where(table.c[column].in_(jobs)))


def ended_first(connection: sa.Connection) -> list[str]:
    """All jobs that have ended, the first first."""
    query = sa.select(schema.jobs.c.id).where(schema.jobs.c.state != _LIVE).order_by(schema.jobs.c.ended_at)
    return list(connection.execute(query).scalars())
