"""Arrays in the store: which are open, what has become of their members, and what is known of trials.

What an array's members have come to is not kept beside them: it follows from their rows, which are written together
with the log entries that they stand for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from millpond.server.store.schema import jobs, trials
from millpond.specs.job.job_ids import split_member
from millpond.specs.job.members import member_document


def row_of(job: str) -> str:
    """The id under which the file of a job is stored: that of a member is made of its array's."""
    member = split_member(job)
    return job if member is None else member[0]


def document_in(text: str, job: str) -> dict[str, Any] | None:
    """The job file of a job, as its row has it; None when it is to be a member of what is no array."""
    member = split_member(job)
    document: dict[str, Any] = json.loads(text)
    if member is None:
        return document
    is_array = document.get("array") is not None or document.get("sweep") is not None
    return member_document(document, member[1]) if is_array else None


def states_of(connection: sa.Connection, array: str) -> dict[str, str]:
    """The members that were handed to the scheduler or ended before, with the state of their rows."""
    query = sa.select(jobs.c.id, jobs.c.state).where(jobs.c.parent == array)
    return {row.id: row.state for row in connection.execute(query)}


def first_info(connection: sa.Connection, array: str) -> str | None:
    """The last look of the member that was submitted first, if it has ended."""
    query = sa.select(jobs.c.info).where(jobs.c.parent == array, jobs.c.info.is_not(None))
    return connection.execute(query.order_by(jobs.c.submitted_at, jobs.c.id).limit(1)).scalar_one_or_none()


def of_open_array() -> sa.ColumnElement[bool]:
    """Whether a row is that of a member whose array has not ended: without it, the array would run it again."""
    parent = jobs.alias()
    return sa.select(parent.c.id).where(parent.c.id == jobs.c.parent, parent.c.ended_at.is_(None)).exists()


def has_members() -> sa.ColumnElement[bool]:
    """Whether rows of members are left."""
    member = jobs.alias()
    return sa.select(member.c.id).where(member.c.parent == jobs.c.id).exists()


def trials_of(connection: sa.Connection, array: str) -> dict[str, dict[str, Any]]:
    """What is known of the trials of a sweep, by job."""
    query = sa.select(trials.c.job, trials.c.data).where(trials.c.parent == array)
    return {row.job: json.loads(row.data) for row in connection.execute(query)}


def write_trials(connection: sa.Connection, array: str, known: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep what is known of these trials now."""
    connection.execute(trials.delete().where(trials.c.job.in_(list(known))))
    rows = [{"job": job, "parent": array, "data": json.dumps(data)} for job, data in known.items()]
    connection.execute(trials.insert(), rows)
