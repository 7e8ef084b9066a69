"""Removing from the store what is too old: whole jobs with their histories, never what a restart would replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.arrays import has_members, of_open_array

_LIVE: Final = "live"
DELETED: Final = "deleted"
"""State of a job that was deleted while a restart would still replay it."""
_AT_ONCE: Final = 200
"""Deleted jobs that are dropped with one snapshot."""


def forgettable(connection: sa.Connection, before: float, most: int) -> list[str]:
    """Jobs that ended before an instant, the first first, and that no restart would replay any more."""
    jobs = schema.jobs
    still_needed = sa.or_(of_open_array(), sa.and_(jobs.c.members > 0, has_members()))
    query = sa.select(jobs.c.id).where(
        jobs.c.ended_at < before, jobs.c.state != _LIVE, ~still_needed, _is_out_of_replay(connection)
    )
    return list(connection.execute(query.order_by(jobs.c.ended_at).limit(most)).scalars())


def _is_out_of_replay(connection: sa.Connection) -> sa.ColumnElement[bool]:
    """Whether no restart would replay anything of a job."""
    jobs, events, snapshots = schema.jobs, schema.events, schema.snapshots
    replayed_from = connection.execute(sa.select(sa.func.min(snapshots.c.seq))).scalar_one_or_none() or 0
    return ~sa.select(events.c.job).where(events.c.job == jobs.c.id, events.c.seq > replayed_from).exists()


def forget(connection: sa.Connection, jobs: Sequence[str]) -> None:
    """Drop jobs that ``forgettable`` named. What they used stays in the books."""
    tables = (
        (schema.jobs, "id"),
        (schema.events, "job"),
        (schema.decisions, "job"),
        (schema.idempotency_keys, "job"),
        (schema.trials, "job"),
    )
    for table, column in tables:
        connection.execute(table.delete().where(table.c[column].in_(jobs)))


def ended_first(connection: sa.Connection) -> list[str]:
    """All jobs that have ended, the first first."""
    query = sa.select(schema.jobs.c.id).where(schema.jobs.c.state != _LIVE).order_by(schema.jobs.c.ended_at)
    return list(connection.execute(query).scalars())


def delete(connection: sa.Connection, job: str) -> bool:
    """Make a job that has ended as if it had never been, an array with its members; false when there is none.

    Its id stays taken, and its part of the log stays for as long as a restart would replay it.
    """
    jobs, keys = schema.jobs, schema.idempotency_keys
    gone = jobs.update().where(sa.or_(jobs.c.id == job, jobs.c.parent == job), jobs.c.info.is_not(None))
    found = connection.execute(gone.values(state=DELETED, info=None, name=None, document="{}"))
    connection.execute(keys.delete().where(keys.c.job == job))
    connection.execute(schema.trials.delete().where(schema.trials.c.parent == job))
    return found.rowcount > 0


def forget_deleted(connection: sa.Connection) -> None:
    """Drop what is left of deleted jobs and no restart would replay any more."""
    jobs = schema.jobs
    query = sa.select(jobs.c.id).where(jobs.c.state == DELETED, _is_out_of_replay(connection)).limit(_AT_ONCE)
    forget(connection, list(connection.execute(query).scalars()))
