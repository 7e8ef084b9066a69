"""What the server remembers, and in which transactions.

One thread writes what the scheduler knows (the scheduler's), any thread reads; what is too old is removed by another,
in small transactions (``server.retention``), and accounts and the audit log have parts and writers of their own
(``accounts``, ``audit``). A batch of events becomes durable in one transaction before any
of them is acknowledged or handled; decisions become durable before an engine sees them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from millpond.model.codec import from_plain, to_plain
from millpond.model.decisions import Decision
from millpond.model.errors import UnavailableError
from millpond.server.store import arrays, books, deliveries, forgetting, histories, schema
from millpond.server.store.accounts import AccountStore
from millpond.server.store.audit import AuditStore
from millpond.server.store.books import Share, UsageSum
from millpond.server.store.connecting import claim, connect
from millpond.server.store.deliveries import Delivery, NewDelivery
from millpond.server.store.histories import DecisionEntry, History, LogEntry
from millpond.server.store.leadership import Leadership, Seat
from millpond.server.store.revisions import RevisionStore
from millpond.server.store.secrets import SecretStore
from millpond.server.store.ssh_keys import SshKeyStore
from millpond.server.usage import Change, Stretch
from millpond.specs.api import JobInfo
from millpond.specs.members import split_member

KEPT_EVENTS: Final = 1_000_000
"""The newest events that are kept behind a snapshot, for job histories and for replay in the simulator."""
KEPT_SNAPSHOTS: Final = 2
LIVE: Final = "live"
DEPENDENT: Final = "dependent"
"""State of a job that waits for others and is not in the log yet."""
_EVENTS_AT_ONCE: Final = 1_000
CLOSED: Final = "closed"
"""State of an array of which no more members are handed to the scheduler."""
_DAY_S: Final = 86_400.0
_KEYS_KEPT_S: Final = 7 * _DAY_S
_DELIVERIES_KEPT_S: Final = 30 * _DAY_S


@dataclass(frozen=True, slots=True)
class NewJob:
    """A submission as it was accepted.

    Attributes:
        key, digest: the client's idempotency key (or empty) and the hash of what it sent with it.
        state: ``LIVE``, ``DEPENDENT`` or ``CLOSED``.
        members: of an array, how many it has.
        parent: of a member, its array; then there is no document.
        ended: of a job that ended before it was handed to the scheduler, its last look.
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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The scheduler's state after log entry ``seq``, and the version of Millpond that wrote it."""

    seq: int
    at: float
    version: str
    data: dict[str, Any]


class Store:
    """One open database.

    Args:
        url: an SQLAlchemy URL of SQLite or PostgreSQL.
        leadership: of a database that several servers can reach, for a server that says where it is; closed with the
            store.

    Raises:
        UnavailableError: it cannot be opened, or another server holds it.
    """

    def __init__(self, url: str, leadership: Leadership | None = None) -> None:
        self.leadership = leadership or claim(url, Seat())
        try:
            self._engine = connect(url, self.leadership)
        except UnavailableError:
            if self.leadership is not None:
                self.leadership.close()
            raise
        self.accounts = AccountStore(self._engine)
        self.audit = AuditStore(self._engine)
        self.ssh_keys = SshKeyStore(self._engine)
        self.secrets = SecretStore(self._engine)
        self.revisions = RevisionStore(self._engine)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()
        if self.leadership is not None:
            self.leadership.close()

    @property
    def database(self) -> sa.Engine:
        """The database itself, for tables that are not the scheduler's."""
        return self._engine

    # ---- writing ------------------------------------------------------------------------------------------------

    def append(
        self,
        entries: Sequence[LogEntry],
        new_jobs: Sequence[NewJob] = (),
        released: Sequence[str] = (),
        closed: Sequence[str] = (),
    ) -> None:
        """Make a batch of events and the jobs they submit durable, all or nothing.

        Args:
            released: jobs that waited for others until now.
            closed: arrays of which no more members are handed to the scheduler.
        """
        with self._engine.begin() as connection:
            if new_jobs:
                connection.execute(schema.jobs.insert(), [_job_row(job) for job in new_jobs])
            keys = [
                {"key": job.key, "job": job.id, "digest": job.digest, "at": job.submitted_at}
                for job in new_jobs
                if job.key
            ]
            if keys:
                connection.execute(schema.idempotency_keys.insert(), keys)
            for names, state in ((released, LIVE), (closed, CLOSED)):
                if names:
                    concerned = schema.jobs.c.id.in_(names)
                    connection.execute(schema.jobs.update().where(concerned).values(state=state))
            if entries:
                connection.execute(schema.events.insert(), [_event_row(entry) for entry in entries])

    def record(
        self,
        decisions: Sequence[DecisionEntry],
        ended: Sequence[JobInfo] = (),
        held: Sequence[Change] = (),
        told: Sequence[NewDelivery] = (),
    ) -> None:
        """Make what a turn came to durable, all or nothing.

        Args:
            decisions: what was decided.
            ended: the last look of jobs that have ended.
            held: changes of what jobs hold.
            told: what is to be told to webhooks.
        """
        with self._engine.begin() as connection:
            books.write_changes(connection, held)
            deliveries.write_new(connection, told)
            if decisions:
                connection.execute(schema.decisions.insert(), [_decision_row(entry) for entry in decisions])
            for info in ended:
                connection.execute(
                    schema.jobs.update()
                    .where(schema.jobs.c.id == info.id, schema.jobs.c.state != forgetting.DELETED)
                    .values(state=info.state, ended_at=info.ended_at, info=info.model_dump_json())
                )

    def pin(self, job: str, pinned: dict[str, Any]) -> None:
        """Write down what was found for a job that waits: which image, which copies of data."""
        table = schema.jobs
        with self._engine.begin() as connection:
            text = connection.execute(sa.select(table.c.document).where(table.c.id == job)).scalar_one_or_none()
            if text is not None:
                document = json.dumps({**json.loads(text), "pinned": pinned})
                connection.execute(table.update().where(table.c.id == job).values(document=document))

    def delivery_tried(self, number: int, state: str, due_at: float, trouble: str) -> None:
        """Note one more try to tell a webhook something."""
        with self._engine.begin() as connection:
            deliveries.tried(connection, number, state, due_at, trouble)

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and drop what is too old to be needed."""
        events, snapshots, keys = schema.events, schema.snapshots, schema.idempotency_keys
        with self._engine.begin() as connection:
            connection.execute(snapshots.delete().where(snapshots.c.seq == snapshot.seq))
            connection.execute(
                snapshots.insert().values(
                    seq=snapshot.seq, at=snapshot.at, version=snapshot.version, data=json.dumps(snapshot.data)
                )
            )
            kept = sa.select(snapshots.c.seq).order_by(snapshots.c.seq.desc()).limit(KEPT_SNAPSHOTS)
            oldest = min(connection.execute(kept).scalars())
            connection.execute(snapshots.delete().where(snapshots.c.seq < oldest))
            connection.execute(events.delete().where(events.c.seq <= min(oldest, snapshot.seq - KEPT_EVENTS)))
            connection.execute(keys.delete().where(keys.c.at < snapshot.at - _KEYS_KEPT_S))
            forgetting.forget_deleted(connection)
            deliveries.forget(connection, snapshot.at - _DELIVERIES_KEPT_S)

    def forget(self, jobs: Sequence[str]) -> None:
        """Drop jobs with their histories; only those that ``forgettable`` named. Any thread."""
        with self._engine.begin() as connection:
            forgetting.forget(connection, jobs)

    # ---- reading ------------------------------------------------------------------------------------------------

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot; None in a new database."""
        query = sa.select(schema.snapshots).order_by(schema.snapshots.c.seq.desc()).limit(1)
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else Snapshot(row.seq, row.at, row.version, json.loads(row.data))

    def latest_snapshot_seq(self) -> int | None:
        """The place in the log of the newest snapshot: a quick look whether the database can be read at all."""
        with self._engine.connect() as connection:
            return connection.execute(sa.select(sa.func.max(schema.snapshots.c.seq))).scalar()

    def events_after(self, seq: int) -> Iterator[LogEntry]:
        """The log behind an entry, oldest first; no transaction is open while whoever asks works on it."""
        table = schema.events
        while True:
            query = sa.select(table).where(table.c.seq > seq).order_by(table.c.seq).limit(_EVENTS_AT_ONCE)
            with self._engine.connect() as connection:
                rows = connection.execute(query).all()
            for row in rows:
                yield LogEntry(row.seq, from_plain(json.loads(row.data)), row.job)
            if len(rows) < _EVENTS_AT_ONCE:
                return
            seq = rows[-1].seq

    def decisions_after(self, seq: int) -> dict[int, Decision]:
        """Decisions taken behind a log entry, by id."""
        table = schema.decisions
        query = sa.select(table).where(table.c.seq > seq).order_by(table.c.id)
        with self._engine.connect() as connection:
            return {row.id: from_plain(json.loads(row.data)) for row in connection.execute(query)}

    def history(self, job: str) -> History:
        """Everything the log and the decisions say about one job, oldest first."""
        with self._engine.connect() as connection:
            return histories.of_job(connection, job)

    def node_history(self, node: str, most: int) -> History:
        """The latest that the log says about one node, oldest first."""
        with self._engine.connect() as connection:
            return histories.of_node(connection, node, most)

    def happenings(self, after: int | None, most: int) -> History:
        """What happened and was decided, oldest first: the first behind a place in the log, or the latest."""
        with self._engine.connect() as connection:
            return histories.of_late(connection, most) if after is None else histories.after(connection, after, most)

    def decisions_by_id(self, numbers: Iterable[int]) -> dict[int, Decision]:
        """Decisions, looked up by their ids."""
        with self._engine.connect() as connection:
            return histories.by_id(connection, numbers)

    def document(self, job: str) -> dict[str, Any] | None:
        """The job file of a job as it was submitted; that of a member of an array is made of its array's."""
        with self._engine.connect() as connection:
            return arrays.document_of(connection, job)

    def submitted(self, job: str) -> NewJob | None:
        """A job as it was accepted; None when there is none. A member of an array is as its array was."""
        member = split_member(job)
        query = sa.select(schema.jobs).where(schema.jobs.c.id == (job if member is None else member[0]))
        with self._engine.connect() as connection:
            row = connection.execute(query).one_or_none()
            document = arrays.document_of(connection, job)
        if row is None or document is None:
            return None
        return NewJob(job, row.user, row.submitted_at, document, state=row.state, group=row.group)

    def documents_with(self, field: str, *, live_only: bool = False) -> list[dict[str, Any]]:
        """Job files in which a field stands, with whatever value."""
        table = schema.jobs
        query = sa.select(table.c.document).where(table.c.document.contains(f'"{field}": ', autoescape=True))
        if live_only:
            query = query.where(table.c.ended_at.is_(None))
        with self._engine.connect() as connection:
            return [json.loads(text) for text in connection.execute(query).scalars()]

    def live_pins(self) -> list[dict[str, Any]]:
        """Files of jobs that have not ended and for which something was found."""
        found = self.documents_with("pinned", live_only=True)
        return [document for document in found if isinstance(document.get("pinned"), dict)]

    def pinned_copies(self) -> frozenset[str]:
        """The keys of copies in the data cache that such jobs read."""
        return frozenset(key for document in self.live_pins() for key in document["pinned"].get("data", {}).values())

    def ended_with(self, fields: Sequence[str], before: float) -> list[str]:
        """Ids of jobs that ended before an instant and whose file has one of these fields."""
        table = schema.jobs
        has_one = sa.or_(*(table.c.document.contains(f'"{field}": ', autoescape=True) for field in fields))
        parents = sa.select(table.c.id).where(table.c.members > 0, has_one)
        query = sa.select(table.c.id).where(table.c.ended_at < before, sa.or_(has_one, table.c.parent.in_(parents)))
        with self._engine.connect() as connection:
            return list(connection.execute(query).scalars())

    def ended_job(self, job: str) -> JobInfo | None:
        """A job that has ended; None when it lives or never was."""
        query = sa.select(schema.jobs.c.info).where(schema.jobs.c.id == job)
        with self._engine.connect() as connection:
            text = connection.execute(query).scalar_one_or_none()
        return None if text is None else JobInfo.model_validate_json(text)

    def ended_jobs(
        self, limit: int, state: str = "", owners: Owners | None = None, of: str | None = ""
    ) -> list[JobInfo]:
        """Jobs that have ended, the latest submitted first; all, or those of some owners.

        Args:
            of: the members of this array, by index; empty: jobs and arrays; None: jobs and members.
        """
        table = schema.jobs
        query = sa.select(table.c.info).where(table.c.info.is_not(None))
        query = query.where(table.c.members == 0 if of is None else table.c.parent == of)
        if state:
            query = query.where(table.c.state == state)
        if owners is not None:
            query = query.where(sa.or_(table.c.user == owners.user, table.c.group.in_(owners.groups)))
        if of:  # indices rise with time, and those of one instant with their ids, the shorter first
            query = query.order_by(table.c.submitted_at, sa.func.length(table.c.id), table.c.id).limit(limit)
        else:
            query = query.order_by(table.c.submitted_at.desc(), table.c.id).limit(limit)
        with self._engine.connect() as connection:
            return [JobInfo.model_validate_json(text) for text in connection.execute(query).scalars()]

    def ended_counts(self) -> dict[str, int]:
        """How many jobs ended in which state; of arrays, their members count."""
        table = schema.jobs
        ended = sa.and_(table.c.info.is_not(None), table.c.members == 0)
        query = sa.select(table.c.state, sa.func.count()).where(ended).group_by(table.c.state)
        with self._engine.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def open_stretches(self) -> list[Stretch]:
        """What jobs held, and had not let go of, when the books were last written."""
        with self._engine.connect() as connection:
            return books.open_stretches(connection)

    def usage(self, by: str, since: float, until: float, share: Share | None = None) -> list[UsageSum]:
        """Usage between two instants; see ``books.sums``."""
        with self._engine.connect() as connection:
            return books.sums(connection, by, since, until, share)

    def due_deliveries(self, now: float, limit: int) -> list[Delivery]:
        """What is to be told now, oldest first."""
        with self._engine.connect() as connection:
            return deliveries.due(connection, now, limit)

    def next_delivery(self) -> float | None:
        """When something is to be told next; None when nothing waits."""
        with self._engine.connect() as connection:
            return deliveries.next_due(connection)

    def latest_deliveries(self, limit: int) -> list[Delivery]:
        """What was or is to be told, newest first."""
        with self._engine.connect() as connection:
            return deliveries.latest(connection, limit)

    def delete(self, job: str) -> bool:
        """Drop a job that has ended; see ``forgetting.delete``."""
        with self._engine.begin() as connection:
            return forgetting.delete(connection, job)

    def forgettable(self, before: float, most: int) -> list[str]:
        """Jobs that ended before an instant; see ``forgetting.forgettable``."""
        with self._engine.connect() as connection:
            return forgetting.forgettable(connection, before, most)

    def ended_first(self) -> list[str]:
        """All jobs that have ended, the first first."""
        with self._engine.connect() as connection:
            return forgetting.ended_first(connection)

    def owners(self) -> list[JobOwner]:
        """Whose every job is."""
        table = schema.jobs
        query = sa.select(table.c.id, table.c.user, table.c.group, table.c.ended_at.is_not(None))
        with self._engine.connect() as connection:
            return [JobOwner(*row) for row in connection.execute(query)]

    def is_job(self, job: str) -> bool:
        """Whether a job of this id was ever submitted."""
        query = sa.select(schema.jobs.c.id).where(schema.jobs.c.id == job)
        with self._engine.connect() as connection:
            return connection.execute(query).first() is not None

    def dependents(self) -> list[NewJob]:
        """Jobs that wait for others, the oldest first."""
        return self._jobs_where(schema.jobs.c.state == DEPENDENT)

    def open_arrays(self) -> list[NewJob]:
        """Arrays that have not ended, the oldest first."""
        return self._jobs_where(sa.and_(schema.jobs.c.members > 0, schema.jobs.c.ended_at.is_(None)))

    def _jobs_where(self, condition: sa.ColumnElement[bool]) -> list[NewJob]:
        table = schema.jobs
        query = sa.select(table).where(condition).order_by(table.c.submitted_at, table.c.id)
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return [
            NewJob(
                row.id,
                row.user,
                row.submitted_at,
                json.loads(row.document),
                state=row.state,
                group=row.group,
                members=row.members,
            )
            for row in rows
        ]

    def member_states(self, array: str) -> dict[str, str]:
        """States of the members that have a row; see ``arrays.states_of``."""
        with self._engine.connect() as connection:
            return arrays.states_of(connection, array)

    def first_member(self, array: str) -> JobInfo | None:
        """The last look of the member that was handed in first, if it has ended."""
        with self._engine.connect() as connection:
            text = arrays.first_info(connection, array)
        return None if text is None else JobInfo.model_validate_json(text)

    def trials(self, array: str) -> dict[str, dict[str, Any]]:
        """What is known of the trials of a sweep, by job."""
        with self._engine.connect() as connection:
            return arrays.trials_of(connection, array)

    def write_trials(self, array: str, known: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep what is known of these trials now. Any thread."""
        with self._engine.begin() as connection:
            arrays.write_trials(connection, array, known)

    def live_jobs(self) -> list[str]:
        """Ids of jobs that have not been recorded as ended."""
        query = sa.select(schema.jobs.c.id).where(schema.jobs.c.state == LIVE)
        with self._engine.connect() as connection:
            return list(connection.execute(query).scalars())

    def repeated(self, key: str) -> tuple[str, str] | None:
        """Job and digest of the submission that came with this idempotency key before."""
        table = schema.idempotency_keys
        query = sa.select(table.c.job, table.c.digest).where(table.c.key == key)
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else (row.job, row.digest)


def _job_row(job: NewJob) -> dict[str, Any]:
    ended = job.ended
    return {
        "id": job.id,
        "user": job.user,
        "group": job.group,
        "submitted_at": job.submitted_at,
        "document": json.dumps(job.document),
        "state": job.state if ended is None else ended.state,
        "ended_at": None if ended is None else ended.ended_at,
        "info": None if ended is None else ended.model_dump_json(),
        "parent": job.parent,
        "members": job.members,
    }


def _event_row(entry: LogEntry) -> dict[str, Any]:
    event = entry.event
    return {
        "seq": entry.seq,
        "at": event.at,
        "type": type(event).__name__,
        "job": entry.job,
        "data": json.dumps(to_plain(event)),
    }


def _decision_row(entry: DecisionEntry) -> dict[str, Any]:
    decision = entry.decision
    return {
        "id": decision.id,
        "seq": entry.seq,
        "at": entry.at,
        "type": type(decision).__name__,
        "job": decision.job,
        "data": json.dumps(to_plain(decision)),
    }
