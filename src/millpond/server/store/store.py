"""What the server remembers, and in which transactions.

One thread writes what the scheduler knows (the scheduler's), any thread reads; what is too old is removed by another,
in small transactions (``server.operations.retention``). What the scheduler does not know has tables and writers of its
own, here (``audit``, ``settings``) or beside its subject (``server.auth.account_store``). A batch of events becomes
durable in one transaction before any of them is acknowledged or handled; decisions become durable before an engine sees
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa

from millpond.model.codec import to_plain
from millpond.model.decisions import Decision
from millpond.model.errors import MillpondError
from millpond.model.units import DAY_S
from millpond.server.store import deliveries, schema
from millpond.server.store.audit import AuditStore
from millpond.server.store.connection.database import claim, connect
from millpond.server.store.connection.durable_writes import DurableWrites
from millpond.server.store.connection.identity import IdentityStore
from millpond.server.store.connection.leadership import Leadership, Seat
from millpond.server.store.connection.reserve import Reserve
from millpond.server.store.deletion import JobDeletion, forget_deleted
from millpond.server.store.deliveries import DeliveryStore, NewDelivery
from millpond.server.store.histories import DecisionEntry, HistoryStore, LogEntry, decision_entry, log_entry
from millpond.server.store.jobs import CLOSED, LIVE, JobStore, NewJob, change_document, job_row, write_ended
from millpond.server.store.settings import (
    NotificationSettingsStore,
    QueueSettingsStore,
    SavedViewStore,
    SecretStore,
    WebhookStore,
)
from millpond.server.store.statistics.books import UsageChange, UsageStore, write_changes
from millpond.server.store.statistics.card_use import CardUseStore
from millpond.server.store.statistics.start_waits import StartWaitStore, write_waits
from millpond.server.store.statistics.time_series import TimeSeriesStore
from millpond.server.store.tables import TableStore, plain_in
from millpond.server.store.trials import TrialStore
from millpond.specs.api.jobs.jobs import JobInfo

KEPT_EVENTS: Final = 1_000_000
"""The newest events that are kept behind a snapshot, for job histories and for replay in the simulator."""
KEPT_SNAPSHOTS: Final = 2
_EVENTS_AT_ONCE: Final = 1_000
_KEYS_KEPT_S: Final = 7 * DAY_S
_DELIVERIES_KEPT_S: Final = 30 * DAY_S
_TRIED_FOR_MS: Final = 500
# What is run in every turn is put together once: that takes longer than running it.
_NEW_JOBS, _NEW_KEYS, _NEW_EVENTS, _NEW_DECISIONS, _NEW_CLAIMS = (
    table.insert() for table in (schema.jobs, schema.idempotency_keys, schema.events, schema.decisions, schema.claims)
)


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """The scheduler's state after log entry ``seq``, and the version of Millpond that wrote it."""

    seq: int
    at: float
    version: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClaimsEntry:
    """The scheduler's claims as a cycle left them (``Scheduler.changed_claims``), by its tick in the log."""

    seq: int
    data: list[Any]


class Store(TableStore):
    """One open database.

    Args:
        url: an SQLAlchemy URL of SQLite or PostgreSQL.
        leadership: of a database that several servers can reach, for a server that says where it is; closed with the
            store.
        opens: how it is opened; ``connect_to_read`` for a program that changes nothing.

    Raises:
        UnavailableError: it cannot be opened, or another server holds it.
    """

    def __init__(
        self, url: str, leadership: Leadership | None = None, opens: Callable[..., sa.Engine] = connect
    ) -> None:
        self.leadership = leadership or claim(url, Seat())
        try:
            super().__init__(opens(url, self.leadership))
        except MillpondError:
            if self.leadership is not None:
                self.leadership.close()
            raise
        self.writes = DurableWrites(self._engine, self.leadership)
        self.audit = AuditStore(self._engine)
        self.jobs = JobStore(self._engine)
        self.deliveries = DeliveryStore(self._engine)
        self.secrets = SecretStore(self._engine)
        self.reserve = Reserve(self._engine)
        self.identity = IdentityStore(self._engine)
        self.histories = HistoryStore(self._engine)
        self.books = UsageStore(self._engine)
        self.card_use = CardUseStore(self._engine)
        self.start_waits = StartWaitStore(self._engine)
        self.trials = TrialStore(self._engine)
        self.time_series = TimeSeriesStore(self._engine)
        self.queue_settings = QueueSettingsStore(self._engine)
        self.saved_views = SavedViewStore(self._engine)
        self.notification_settings = NotificationSettingsStore(self._engine)
        self.webhooks = WebhookStore(self._engine)
        self.deletion = JobDeletion(self._engine)

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
        changed: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        """Make a batch of events and the jobs they submit durable, all or nothing.

        Args:
            released: jobs that waited for others until now.
            closed: arrays of which no more members are handed to the scheduler.
            changed: by job, fields of its stored file that have other values from now on.

        Raises:
            CommitInDoubtError: whether it is durable is open (``writes``).
        """
        with self.writes.transaction() as connection:
            if new_jobs:
                connection.execute(_NEW_JOBS, [job_row(job) for job in new_jobs])
                write_waits(connection, [job.ended for job in new_jobs if job.ended is not None])
            keys = [
                {"key": job.key, "job": job.id, "digest": job.digest, "at": job.submitted_at}
                for job in new_jobs
                if job.key
            ]
            if keys:
                connection.execute(_NEW_KEYS, keys)
            for names, state in ((released, LIVE), (closed, CLOSED)):
                if names:
                    concerned = schema.jobs.c.id.in_(names)
                    connection.execute(schema.jobs.update().where(concerned).values(state=state))
            for job, fields in changed.items():
                change_document(connection, job, fields)
            if entries:
                connection.execute(_NEW_EVENTS, [_event_row(entry) for entry in entries])
        if self.leadership is not None and entries:
            self.leadership.written_entry = entries[-1].seq
        if changed:
            self.jobs.document_changes += 1

    def is_durable(self) -> bool:
        """Whether the write in doubt is durable (``DurableWrites.is_durable``)."""
        is_durable = self.writes.is_durable()
        self.jobs.document_changes += 1  # it may have changed some
        return is_durable

    def record(
        self,
        decisions: Sequence[DecisionEntry],
        ended: Sequence[JobInfo] = (),
        held: Sequence[UsageChange] = (),
        new_deliveries: Sequence[NewDelivery] = (),
        claims: ClaimsEntry | None = None,
        refused: Sequence[int] = (),
    ) -> None:
        """Make what a turn came to durable, all or nothing.

        Args:
            decisions: what was decided.
            ended: the last view of jobs that have ended.
            held: changes of what jobs hold.
            new_deliveries: for webhooks and users.
            claims: what the cycle changed of them; None: nothing.
            refused: places in the log of what the scheduler did not accept; no history tells of it.

        Raises:
            CommitInDoubtError: whether it is durable is open (``writes``).
        """
        with self.writes.transaction() as connection:
            write_changes(connection, held)
            deliveries.write_new(connection, new_deliveries)
            if decisions:
                connection.execute(_NEW_DECISIONS, [_decision_row(entry) for entry in decisions])
            if claims is not None:
                connection.execute(_NEW_CLAIMS, [{"seq": claims.seq, "data": json.dumps(claims.data)}])
            if refused:
                of_these = schema.events.c.seq.in_(refused)
                connection.execute(schema.events.update().where(of_these).values(type=schema.UNACCEPTED))
            write_ended(connection, ended)
            write_waits(connection, ended)

    def try_writing(self) -> None:
        """Change nothing, by the ways on which a turn changes something.

        Raises:
            DBAPIError: it could not be written now, or another program locks a table.
        """
        with self._engine.begin() as connection:
            # It is asked again and again: the scheduler must not stand still.
            if connection.dialect.name == "postgresql":
                connection.execute(sa.text(f"SET LOCAL lock_timeout = {_TRIED_FOR_MS}"))
            for table in (schema.events, schema.jobs, schema.decisions):
                connection.execute(table.delete().where(sa.false()))

    def save_snapshot(self, snapshot: StoredSnapshot) -> None:
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
            connection.execute(schema.claims.delete().where(schema.claims.c.seq <= oldest))
            connection.execute(keys.delete().where(keys.c.at < snapshot.at - _KEYS_KEPT_S))
            forget_deleted(connection)
            deliveries.forget(connection, snapshot.at - _DELIVERIES_KEPT_S)

    # ---- reading ------------------------------------------------------------------------------------------------

    def snapshot_places(self) -> list[int]:
        """Where in the log the snapshots stand that are kept, the oldest first; the whole log behind it is kept too."""
        return self._column(sa.select(schema.snapshots.c.seq).order_by(schema.snapshots.c.seq))

    def snapshot(self, seq: int) -> StoredSnapshot:
        """A snapshot that is kept.

        Raises:
            InvalidInputError: it is damaged.
        """
        row = self._first(sa.select(schema.snapshots).where(schema.snapshots.c.seq == seq))
        assert row is not None, seq
        return _snapshot(row)

    def snapshots(self) -> list[StoredSnapshot]:
        """The snapshots that are kept, the oldest first.

        Raises:
            InvalidInputError: one is damaged.
        """
        return [self.snapshot(seq) for seq in self.snapshot_places()]

    def latest_seq(self) -> int:
        """The last entry of the log; 0 in a new database."""
        return self._value(sa.select(sa.func.max(schema.events.c.seq))) or 0

    def latest_snapshot_seq(self) -> int | None:
        """The place in the log of the newest snapshot: a quick look whether the database can be read at all."""
        return self._value(sa.select(sa.func.max(schema.snapshots.c.seq)))

    def events_after(self, seq: int) -> Iterator[LogEntry]:
        """The log behind an entry, oldest first; no transaction is open while it is read."""
        table = schema.events
        while True:
            query = sa.select(table).where(table.c.seq > seq).order_by(table.c.seq).limit(_EVENTS_AT_ONCE)
            rows = self._rows(query)
            for row in rows:
                yield log_entry(row)
            if len(rows) < _EVENTS_AT_ONCE:
                return
            seq = rows[-1].seq

    def decisions_after(self, seq: int) -> dict[int, list[Decision]]:
        """Decisions taken behind a log entry, in their order, by their tick."""
        table = schema.decisions
        query = sa.select(table).where(table.c.seq > seq).order_by(table.c.id)
        found: dict[int, list[Decision]] = {}
        for row in self._rows(query):
            found.setdefault(row.seq, []).append(decision_entry(row).decision)
        return found

    def claims_after(self, seq: int) -> dict[int, list[Any]]:
        """``ClaimsEntry.data`` of the ticks behind a log entry that have some."""
        query = sa.select(schema.claims).where(schema.claims.c.seq > seq)
        return {
            row.seq: plain_in(row.data, f"what entry {row.seq} of the stored log claims") for row in self._rows(query)
        }


def _snapshot(row: sa.Row[Any]) -> StoredSnapshot:
    data = plain_in(row.data, f"the stored state of the scheduler behind entry {row.seq}")
    return StoredSnapshot(row.seq, row.at, row.version, data)


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
