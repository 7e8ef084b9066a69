"""Jobs in the database: as accepted, as ended, and with their job files.

New rows and last views are written in the transaction of their turn (``Store.append``, ``Store.record``). Safe for any
thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from millpond.server.store import schema
from millpond.server.store.job_filter import ALL_JOBS, JobFilter, conditions_of, order_of
from millpond.server.store.job_rows import (
    JOB_INFO,
    OF_VIEW,
    document_in,
    document_of,
    document_or_empty,
    last_view_in,
    readable,
    view_in,
)
from millpond.server.store.tables import TableStore
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.job_ids import array_id

_JOBS: Final = schema.jobs
LIVE: Final = "live"
DEPENDENT: Final = "dependent"
"""State of a job that waits for others and is not in the log yet."""
CLOSED: Final = "closed"
"""State of an array of which no more members are handed to the scheduler."""
DELETED: Final = "deleted"
"""State of a job that was deleted while a restart would still replay it."""

# What the scheduler's thread runs for every job is put together once: that takes longer than running it.
_ASKED_AT_ONCE: Final = 500
_OF_OWNER: Final = (_JOBS.c.id, _JOBS.c.user, _JOBS.c.group, _JOBS.c.ended_at.is_not(None))
_IS_JOB: Final = sa.select(_JOBS.c.id).where(_JOBS.c.id == sa.bindparam("job"))
_EXISTING: Final = sa.select(_JOBS.c.id).where(_JOBS.c.id.in_(sa.bindparam("jobs", expanding=True)))
_LIVING: Final = _EXISTING.where(_JOBS.c.ended_at.is_(None))
_REPEATED: Final = sa.select(schema.idempotency_keys.c.job, schema.idempotency_keys.c.digest).where(
    schema.idempotency_keys.c.key == sa.bindparam("sought")
)
_ENDED: Final = (
    _JOBS.update()
    .where(_JOBS.c.id == sa.bindparam("job"), _JOBS.c.state != DELETED)
    .values(
        state=sa.bindparam("as"),
        ended_at=sa.bindparam("at"),
        info=sa.bindparam("look"),
        name=sa.bindparam("called"),
        queue=sa.bindparam("within"),
    )
)
_LATEST_NAMED: Final = (
    sa.select(*OF_VIEW)
    .where(
        _JOBS.c.name == sa.bindparam("called"),
        _JOBS.c.parent == "",
        _JOBS.c.user == sa.bindparam("of"),
    )
    .order_by(_JOBS.c.submitted_at.desc(), _JOBS.c.id)
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A submission as it was accepted.

    Attributes:
        key, digest: the client's idempotency key (or empty) and the hash of what it sent with it.
        state: ``LIVE``, ``DEPENDENT`` or ``CLOSED``.
        members: of an array, how many it has.
        parent: of a member, its array; then there is no document.
        ended: of a job that ended before it was handed to the scheduler, its last view.
    """

    id: str
    user: str
    submitted_at: float
    document: dict[str, Any]
    key: str = ""
    digest: str = ""
    state: str = LIVE
    group: str = ""
    members: int = 0
    parent: str = ""
    ended: JobInfo | None = None


@dataclass(frozen=True, slots=True)
class JobOwner:
    """Whose a job is, and whether it has ended."""

    job: str
    user: str
    group: str
    ended: bool


@dataclass(frozen=True, slots=True)
class Owners:
    """Whose jobs are wanted: one user's, and those of some groups."""

    user: str
    groups: frozenset[str]


def change_document(connection: sa.Connection, job: str, fields: Mapping[str, Any]) -> None:
    """Write other values of fields into the stored file of a job, if there is such a job."""
    text = connection.execute(sa.select(_JOBS.c.document).where(_JOBS.c.id == job)).scalar_one_or_none()
    if text is not None:
        document = json.dumps({**document_of(text, job), **fields})
        connection.execute(_JOBS.update().where(_JOBS.c.id == job).values(document=document))


class JobStore(TableStore):
    """The jobs of one open database.

    Attributes:
        document_changes: how often stored job files were changed, so that nobody reads one again that stayed as it was.
    """

    document_changes: int = 0

    def pin(self, job: str, pinned: dict[str, Any]) -> None:
        """Write down what was found for a job that waits: which image, which copies of data."""
        with self._engine.begin() as connection:
            change_document(connection, job, {"pinned": pinned})
        self.document_changes += 1

    def document(self, job: str) -> dict[str, Any] | None:
        """The job file of a job as it was submitted; that of a member of an array is made of its array's.

        Raises:
            InvalidInputError: it is damaged.
        """
        query = sa.select(_JOBS.c.document).where(_JOBS.c.id == array_id(job))
        text = self._value(query)
        return None if text is None else document_in(text, job)

    def submitted(self, job: str) -> NewJob | None:
        """A job as it was accepted; None when there is none. A member of an array is as its array was.

        Raises:
            InvalidInputError: its file is damaged.
        """
        query = sa.select(_JOBS).where(_JOBS.c.id == array_id(job))
        row = self._first(query)
        document = None if row is None else document_in(row.document, job)
        if row is None or document is None:
            return None
        return NewJob(job, row.user, row.submitted_at, document, state=row.state, group=row.group)

    def submitted_among(self, jobs: Sequence[str]) -> list[NewJob]:
        """Those of these jobs and arrays that were ever submitted, as accepted; a damaged file is empty."""
        return [job for part in _parts(jobs) for job in self._jobs_where(_JOBS.c.id.in_(part))]

    def submission_times(self) -> dict[str, float]:
        """When each job that has not ended was submitted, whatever it had to wait for before the scheduler was told of
        it; without members of arrays."""
        wanted = (_JOBS.c.state == LIVE, _JOBS.c.parent == "", _JOBS.c.members == 0)
        return dict(map(tuple, self._rows(sa.select(_JOBS.c.id, _JOBS.c.submitted_at).where(*wanted))))

    def sent_roots(self, field: str) -> list[tuple[str, str, str]]:
        """User, group and digest of every stored job in whose file a field names a content."""
        query = sa.select(_JOBS.c.id, _JOBS.c.user, _JOBS.c.group, _JOBS.c.document).where(
            _JOBS.c.document.contains(f'"{field}": ', autoescape=True)
        )
        found = ((row.user, row.group, document.get(field)) for row, document in readable(self._rows(query)))
        return [(user, group, digest) for user, group, digest in found if isinstance(digest, str)]

    def live_documents_with(self, field: str) -> dict[str, dict[str, Any]]:
        """By job, the files of those that have not ended and in which a field stands, with whatever value."""
        query = sa.select(_JOBS.c.id, _JOBS.c.document).where(
            _JOBS.c.ended_at.is_(None), _JOBS.c.document.contains(f'"{field}": ', autoescape=True)
        )
        return {row.id: document for row, document in readable(self._rows(query)) if field in document}

    def live_pins(self) -> list[dict[str, Any]]:
        """Files of jobs that have not ended and for which something was found."""
        found = self.live_documents_with("pinned").values()
        return [document for document in found if isinstance(document.get("pinned"), dict)]

    def pinned_copies(self) -> frozenset[str]:
        """The keys of copies in the data cache that such jobs read."""
        return frozenset(key for document in self.live_pins() for key in document["pinned"].get("data", {}).values())

    def ended_with(self, fields: Sequence[str], before: float) -> list[str]:
        """Ids of jobs that ended before an instant and whose file has one of these fields."""
        has_one = sa.or_(*(_JOBS.c.document.contains(f'"{field}": ', autoescape=True) for field in fields))
        parents = sa.select(_JOBS.c.id).where(_JOBS.c.members > 0, has_one)
        query = sa.select(_JOBS.c.id).where(_JOBS.c.ended_at < before, sa.or_(has_one, _JOBS.c.parent.in_(parents)))
        return self._column(query)

    def ended_job(self, job: str) -> JobInfo | None:
        """A job that has ended; None when it lives or never was."""
        return last_view_in(self._first(sa.select(*OF_VIEW).where(_JOBS.c.id == job)))

    def ended_jobs(
        self, limit: int, wanted: JobFilter = ALL_JOBS, owners: Owners | None = None, of: str | None = ""
    ) -> list[JobInfo]:
        """Jobs that have ended, in the order of ``wanted``; all, or those of some owners.

        Args:
            wanted: which of these.
            of: the members of this array, by index; empty: jobs and arrays; None: jobs and members.
        """
        return [view_in(row) for row in self._rows(self._ended(OF_VIEW, limit, wanted, owners, of))]

    def owners_of_ended(self, limit: int, wanted: JobFilter, owners: Owners | None, of: str) -> list[JobOwner]:
        """Whose the same jobs are."""
        return [JobOwner(*row) for row in self._rows(self._ended(_OF_OWNER, limit, wanted, owners, of))]

    def _ended(
        self,
        columns: Sequence[sa.ColumnElement[Any]],
        limit: int,
        wanted: JobFilter,
        owners: Owners | None,
        of: str | None,
    ) -> sa.Select[Any]:
        query = sa.select(*columns).where(_JOBS.c.info.is_not(None), *conditions_of(self._engine, wanted, of))
        return query.where(_belongs_to(owners)).order_by(*order_of(wanted, of)).limit(limit)

    def ended_between(
        self, behind: tuple[float, str], until: float, limit: int, owners: Owners | None = None
    ) -> tuple[list[JobInfo], tuple[float, str] | None]:
        """Jobs and members of arrays that have ended, by submission and id; all, or those of some owners.

        Of members the instant counts at which their rows were written.

        Args:
            behind: instant and id behind which the first one stands.
            until: they were submitted before this instant.

        Returns:
            At most ``limit`` of them, and behind which place there may be more; None: there are none.
        """
        at, job = behind
        later = sa.or_(_JOBS.c.submitted_at > at, sa.and_(_JOBS.c.submitted_at == at, _JOBS.c.id > job))
        query = sa.select(*OF_VIEW).where(_JOBS.c.info.is_not(None), _JOBS.c.members == 0)
        query = query.where(later, _JOBS.c.submitted_at < until, _belongs_to(owners))
        rows = self._rows(query.order_by(_JOBS.c.submitted_at, _JOBS.c.id).limit(limit))
        last = (rows[-1].submitted_at, rows[-1].id) if len(rows) == limit else None
        return [view_in(row) for row in rows], last

    def latest_named(self, name: str, user: str) -> JobInfo | None:
        """The job of this name that a user submitted last, of those that have ended; None when there is none."""
        return last_view_in(self._first(_LATEST_NAMED, called=name, of=user))

    def ended_counts(self) -> dict[str, int]:
        """How many jobs ended in which state; of arrays, their members count."""
        ended = sa.and_(_JOBS.c.info.is_not(None), _JOBS.c.members == 0)
        query = sa.select(_JOBS.c.state, sa.func.count()).where(ended).group_by(_JOBS.c.state)
        return {row[0]: row[1] for row in self._rows(query)}

    def owners(self) -> list[JobOwner]:
        """Whose every job is."""
        return [JobOwner(*row) for row in self._rows(sa.select(*_OF_OWNER))]

    def is_job(self, job: str) -> bool:
        """Whether a job of this id was ever submitted."""
        return self._first(_IS_JOB, job=job) is not None

    def existing(self, jobs: Sequence[str]) -> set[str]:
        """Those of these jobs that were ever submitted."""
        return self._among(jobs, _EXISTING)

    def living(self, jobs: Sequence[str]) -> set[str]:
        """Those of these jobs that have not ended yet, as far as it is stored, nor were deleted since."""
        return self._among(jobs, _LIVING)

    def _among(self, jobs: Sequence[str], wanted: sa.Select[tuple[str]]) -> set[str]:
        return {job for part in _parts(jobs) for job in self._column(wanted, jobs=part)}

    def dependents(self) -> list[NewJob]:
        """Jobs that wait for others, the oldest first."""
        return self._jobs_where(_JOBS.c.state == DEPENDENT)

    def open_arrays(self) -> list[NewJob]:
        """Arrays that have not ended, the oldest first."""
        return self._jobs_where(sa.and_(_JOBS.c.members > 0, _JOBS.c.ended_at.is_(None)))

    def _jobs_where(self, condition: sa.ColumnElement[bool]) -> list[NewJob]:
        """Jobs with their files; a damaged file is empty, which is no job file."""
        query = sa.select(_JOBS).where(condition).order_by(_JOBS.c.submitted_at, _JOBS.c.id)
        return [
            NewJob(
                row.id,
                row.user,
                row.submitted_at,
                document_or_empty(row.document, row.id),
                state=row.state,
                group=row.group,
                members=row.members,
            )
            for row in self._rows(query)
        ]

    def member_states(self, array: str) -> dict[str, str]:
        """The members that were handed to the scheduler or ended before, with the state of their rows."""
        query = sa.select(_JOBS.c.id, _JOBS.c.state).where(_JOBS.c.parent == array)
        return {row.id: row.state for row in self._rows(query)}

    def first_queued_at(self, array: str) -> float | None:
        """When the first member was handed to the scheduler; None: none was. Some may have ended before that."""
        was_queued = sa.or_(_JOBS.c.info.is_(None), _JOBS.c.info.not_like('%"eligible_at":null%'))
        query = sa.select(_JOBS.c.submitted_at).where(_JOBS.c.parent == array, was_queued)
        found: float | None = self._value(query.order_by(_JOBS.c.submitted_at).limit(1))
        return found

    def first_member(self, array: str) -> JobInfo | None:
        """The last view of the member that was submitted first, if it has ended."""
        query = sa.select(*OF_VIEW).where(_JOBS.c.parent == array, _JOBS.c.info.is_not(None))
        return last_view_in(self._first(query.order_by(_JOBS.c.submitted_at, _JOBS.c.id).limit(1)))

    def repeated(self, key: str) -> tuple[str, str] | None:
        """Job and digest of the submission that came with this idempotency key before."""
        row = self._first(_REPEATED, sought=key)
        return None if row is None else (row.job, row.digest)


def _belongs_to(owners: Owners | None) -> sa.ColumnElement[bool]:
    return sa.true() if owners is None else sa.or_(_JOBS.c.user == owners.user, _JOBS.c.group.in_(owners.groups))


def _parts(jobs: Sequence[str]) -> list[Sequence[str]]:
    """As many at once as one query asks about."""
    return [jobs[begin : begin + _ASKED_AT_ONCE] for begin in range(0, len(jobs), _ASKED_AT_ONCE)]


def write_ended(connection: sa.Connection, ended: Sequence[JobInfo]) -> None:
    """Store the last views of jobs that have ended, but of those that were deleted meanwhile."""
    rows = [
        {
            "job": info.id,
            "as": info.state,
            "at": info.ended_at,
            "look": JOB_INFO.dump_json(info).decode(),
            "called": info.name,
            "within": info.queue,
        }
        for info in ended
    ]
    if rows:
        connection.execute(_ENDED, rows)


def job_row(job: NewJob) -> dict[str, Any]:
    """A job as it is written down when it is accepted."""
    ended = job.ended
    return {
        "id": job.id,
        "user": job.user,
        "group": job.group,
        "submitted_at": job.submitted_at,
        "document": json.dumps(job.document),
        "state": job.state if ended is None else ended.state,
        "ended_at": None if ended is None else ended.ended_at,
        "info": None if ended is None else JOB_INFO.dump_json(ended).decode(),
        "parent": job.parent,
        "members": job.members,
        "name": None if ended is None else ended.name,
        "queue": None if ended is None else ended.queue,
    }
