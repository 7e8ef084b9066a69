"""Delete old jobs with their histories from the store; what a restart replays is never deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.jobs import DELETED, LIVE
from millpond.server.store.tables import TableStore

_AT_ONCE: Final = 200
"""Deleted jobs that are dropped with one snapshot."""


class JobDeletion(TableStore):
    """Removes jobs that have ended."""

    def forgettable(self, before: float) -> list[str]:
        """Jobs that ended before an instant, the first first, and that no restart would replay any more.

        An array is none while it has members: it follows when they are gone.
        """
        jobs = schema.jobs
        still_needed = sa.or_(_of_open_array(), sa.and_(jobs.c.members > 0, _has_members()))
        query = sa.select(jobs.c.id).where(
            jobs.c.ended_at < before, jobs.c.state != LIVE, ~still_needed, _is_out_of_replay()
        )
        return self._column(query.order_by(jobs.c.ended_at, jobs.c.id))

    def ended_first(self) -> list[str]:
        """All jobs that have ended, the first first."""
        return self._column(
            sa.select(schema.jobs.c.id).where(schema.jobs.c.state != LIVE).order_by(schema.jobs.c.ended_at)
        )

    def forget(self, jobs: Sequence[str]) -> None:
        """Drop jobs that ``forgettable`` named. What they used stays in the books."""
        self._execute(*_rows_of(jobs))

    def delete(self, job: str) -> bool:
        """Make a job that has ended as if it had never been, an array with its members; false when there is none.

        Its id stays taken, and its part of the log stays for as long as a restart would replay it.
        """
        jobs, keys = schema.jobs, schema.idempotency_keys
        gone = jobs.update().where(sa.or_(jobs.c.id == job, jobs.c.parent == job), jobs.c.info.is_not(None))
        found = self._execute(
            keys.delete().where(keys.c.job == job),
            schema.trials.delete().where(schema.trials.c.parent == job),
            gone.values(state=DELETED, info=None, name=None, queue=None, document="{}"),
        )
        return found > 0


def forget_deleted(connection: sa.Connection) -> None:
    """Drop what is left of deleted jobs and no restart would replay any more."""
    jobs = schema.jobs
    query = sa.select(jobs.c.id).where(jobs.c.state == DELETED, _is_out_of_replay()).limit(_AT_ONCE)
    if deleted := list(connection.execute(query).scalars()):
        for statement in _rows_of(deleted):
            connection.execute(statement)


def _rows_of(jobs: Sequence[str]) -> list[sa.Delete]:
    """Removes all rows of some jobs."""
    tables = (
        (schema.jobs, "id"),
        (schema.events, "job"),
        (schema.decisions, "job"),
        (schema.idempotency_keys, "job"),
        (schema.trials, "job"),
    )
    return [table.delete().where(table.c[column].in_(jobs)) for table, column in tables]


def _is_out_of_replay() -> sa.ColumnElement[bool]:
    """Whether no restart would replay anything of a job."""
    jobs, events, snapshots = schema.jobs, schema.events, schema.snapshots
    replayed_from = sa.select(sa.func.coalesce(sa.func.min(snapshots.c.seq), 0)).scalar_subquery()
    return ~sa.select(events.c.job).where(events.c.job == jobs.c.id, events.c.seq > replayed_from).exists()


def _of_open_array() -> sa.ColumnElement[bool]:
    """Whether a row is that of a member whose array has not ended: without it, the array would run it again."""
    jobs, parent = schema.jobs, schema.jobs.alias()
    return sa.select(parent.c.id).where(parent.c.id == jobs.c.parent, parent.c.ended_at.is_(None)).exists()


def _has_members() -> sa.ColumnElement[bool]:
    """Whether rows of members are left."""
    jobs, member = schema.jobs, schema.jobs.alias()
    return sa.select(member.c.id).where(member.c.parent == jobs.c.id).exists()
