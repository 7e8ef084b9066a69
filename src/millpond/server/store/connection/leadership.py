"""Who may write to a database that several servers can reach: one of them, the leader. On PostgreSQL only.

An *advisory lock* says who leads now. A session of its own holds it, and PostgreSQL lets go of it when that session
ends: the server died, its machine is gone, or it has stood still for ``LEASE_S``. A number, the *epoch*, says who
leads in the end: it rises with each leader, and every transaction that writes compares it before it commits. So a
leader that stood still and was replaced meanwhile writes nothing more, whatever it had begun. Without that, no lock
would do: between looking at the lock and writing, any time may pass (M. Kleppmann, "How to do distributed locking",
2016, on fencing tokens).

With the epoch, what this server wrote last is looked for: a database that was restored, or a standby of PostgreSQL that
was promoted before it had everything, has an older state, which goes together with nothing that this server knows.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from millpond.model.errors import UnavailableError
from millpond.node.host import procfs
from millpond.node.host.periodic_worker import UNTIL_WOKEN, PeriodicWorker
from millpond.server.store import schema

log = logging.getLogger(__name__)

LEASE_S: Final = 6.0
"""A leader that has not shown itself for so long leads no more."""
SHOWS_EVERY_S: Final = 1.0
CONNECTS_WITHIN_S: Final = 10
_GIVES_UP: Final = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}
"""When a connection counts as broken whose other end is gone without a word: a machine without power, a firewall."""
_LOOKS_EVERY_S: Final = 0.05
_LOCK: Final = {"key": 0x4D494C4C}
_HAS_IDLE_LIMIT: Final = 140_000
"""The first version of PostgreSQL that ends sessions which stand still."""
_ONE_ROW: Final = 1
_LOST: Final = (
    "it lacks what this server has written, up to entry {entry} of the log: it was restored, or a standby of "
    "PostgreSQL promoted that lagged behind; bring back the database that has it, or restart this server, which then "
    "goes on from what this one knows; tasks of jobs that it does not know have to be ended first, and the "
    "restart names them"
)
_table = schema.leadership
_fence = sa.text("""
    SELECT epoch, (:entry = 0 OR EXISTS (SELECT FROM events WHERE seq = :entry)) AND CASE
        WHEN :number = 0 THEN true
        WHEN :number < txid_snapshot_xmax(txid_current_snapshot())
        THEN coalesce(txid_status(:number), 'committed') = 'committed'  -- null: too old to be known
        ELSE false END
    FROM leadership FOR SHARE OF leadership
""")


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a server is.

    Attributes:
        url: its base address.
        boot_id: of the machine as it runs now.
    """

    url: str = ""
    host: str = ""
    boot_id: str = ""
    pid: int = 0
    state_dir: str = ""


def postgresql_options(url: sa.URL) -> dict[str, Any]:
    """How connections to a database are opened, for ``sqlalchemy.create_engine``.

    One that takes a connection and then says nothing is given up soon, and so is one whose machine is gone, unless the
    URL says when. Without that, the kernel waits for two hours.
    """
    ends = {"connect_timeout": CONNECTS_WITHIN_S, **_GIVES_UP}
    # A database without an encoding (SQL_ASCII, made under the locale C) would answer in bytes.
    return {
        "client_encoding": "utf8",
        "connect_args": {name: value for name, value in ends.items() if name not in url.query},
    }


class NotLeadingError(OperationalError):
    """A transaction was not committed, as another server leads by now."""


class WritesLostError(OperationalError):
    """A transaction was not committed, as the database no longer has what this server wrote before."""


class Leadership:
    """One server's claim to lead.

    Attributes:
        epoch: of this leader; 0 before it leads.
        written_entry: the last entry of the log that this leader has written; 0 before there is one.
        written_number: that of its last transaction (``DurableWrites``) that is durable; 0 before there is one.
        lost: another server has taken over.
        on_lost: called then, once, from a thread of its own.
    """

    def __init__(self, url: str, seat: Seat) -> None:
        self.seat = seat
        self.epoch = 0
        self.written_entry = 0
        self.written_number = 0
        self.lost = False
        self.on_lost: Callable[[], None] = lambda: None
        address = sa.make_url(url)
        options = postgresql_options(address)
        self._engine = sa.create_engine(address, poolclass=NullPool, isolation_level="AUTOCOMMIT", **options)
        self._session: sa.Connection | None = None
        self._holds = False
        self._busy = threading.RLock()
        self._worker = PeriodicWorker("leadership", self._pass, SHOWS_EVERY_S, "leadership cannot be shown")
        self._is_shown = False

    def take_lock(self) -> bool:
        """Ask for the lock; false when another server has it. Does not wait.

        The leader shows every second, from a thread of its own, that it is alive.

        Raises:
            DBAPIError: the database does not answer.
        """
        with self._session_in_use() as session:
            if not self._holds:
                self._holds = session.execute(sa.text("SELECT pg_try_advisory_lock(:key)"), _LOCK).scalar_one()
        if self._holds and not self._is_shown:
            self._is_shown = True
            self._worker.start(SHOWS_EVERY_S)
        return self._holds

    def begin(self, database: sa.Engine) -> None:
        """Lead from now on: whatever an earlier leader had begun to write comes to nothing.

        Args:
            database: with all tables, the lock taken. What is written through it is fenced from here on.
        """
        with database.begin() as connection:
            connection.execute(
                sa.text("SET LOCAL lock_timeout = 0")
            )  # one that stood still as it committed is outwaited
            raised = sa.update(_table).values(epoch=_table.c.epoch + 1, **asdict(self.seat)).returning(_table.c.epoch)
            epoch = connection.execute(raised).scalar_one_or_none()
            if epoch is None:
                epoch = 1
                connection.execute(_table.insert().values(id=_ONE_ROW, epoch=epoch, **asdict(self.seat)))
        self.epoch = epoch
        sa.event.listen(database, "commit", self._check)

    def leader(self) -> Seat | None:
        """Who leads, or led last; None when no server ever did.

        Raises:
            DBAPIError: the database does not answer.
        """
        with self._session_in_use() as session:
            if session.execute(sa.select(sa.func.to_regclass(_table.name))).scalar_one() is None:
                return None  # the first leader is about to make the tables
            row = session.execute(sa.select(_table)).first()
        return None if row is None else Seat(row.url, row.host, row.boot_id, row.pid, row.state_dir)

    def show(self) -> bool:
        """Show once that this server leads; false when another one has taken over.

        A lock that was lost (the database was restarted, this process was stopped for a while) is taken again if no
        server has led meanwhile. A database that does not answer decides nothing: without it no server writes.
        """
        with self._busy:
            try:
                held, is_ours = self._look()
            except DBAPIError as error:
                log.warning("the database does not answer (%s); whether this server still leads is open", error.orig)
                return True
            if is_ours:  # else, without the lock, its holder has not begun: perhaps it is our old session
                return True
            if held:
                self._hang_up()
            self.lost = True
            return False

    def close(self) -> None:
        """Let another server lead."""
        self._worker.close(LEASE_S)
        with self._busy:
            if self._session is not None:  # said aloud: PostgreSQL may take a while to notice that a session has ended
                with contextlib.suppress(DBAPIError):
                    self._session.execute(sa.text("SELECT pg_advisory_unlock_all()"))
            self._hang_up()
        self._engine.dispose()

    def _look(self) -> tuple[bool, bool]:
        """Whether we have the lock, and whether no other server has begun to lead since we did."""
        with contextlib.suppress(DBAPIError):
            return self._ask()
        return self._ask()  # perhaps only the session had ended

    def _ask(self) -> tuple[bool, bool]:
        held, epoch = self.take_lock(), self.epoch  # which the main thread may set before there is an answer
        with self._session_in_use() as session:
            # Before it has begun there may be no table; a word keeps the session alive all the same.
            query = sa.select(_table.c.epoch) if epoch else sa.select(sa.literal(0))
            return held, session.execute(query).scalar_one() == epoch

    def _pass(self) -> float | None:
        if self.show():
            return None
        log.critical("another server has taken over (epoch %d is past)", self.epoch)
        self.on_lost()
        return UNTIL_WOKEN

    def _check(self, connection: sa.Connection) -> None:
        """Before each commit. The row is locked until then, so that no leader can begin between check and commit."""
        written = {"entry": self.written_entry, "number": self.written_number}
        epoch, is_whole = connection.execute(_fence, written).one()
        if epoch == self.epoch and is_whole:
            return
        # SQLAlchemy takes it as over, and would hand on its connection with what was begun, to the next commit.
        connection.connection.rollback()
        if epoch != self.epoch:
            raise NotLeadingError("COMMIT", None, Exception("another server leads now"))
        raise WritesLostError("COMMIT", None, Exception(_LOST.format(entry=self.written_entry)))

    @contextlib.contextmanager
    def _session_in_use(self) -> Iterator[sa.Connection]:
        """The session that has the lock, or is to; a new one when that has ended. What fails in it ends it."""
        with self._busy:
            try:
                if self._session is None:
                    self._session = self._engine.connect()
                    _bound_idleness(self._session)
                yield self._session
            except DBAPIError:
                self._hang_up()
                raise

    def _hang_up(self) -> None:
        """Release the lock, if this server has it."""
        session, self._session, self._holds = self._session, None, False
        if session is not None:
            session.invalidate()
            session.close()


def _bound_idleness(session: sa.Connection) -> None:
    if int(session.execute(sa.text("SHOW server_version_num")).scalar_one()) >= _HAS_IDLE_LIMIT:
        session.execute(sa.text(f"SET idle_session_timeout = {int(LEASE_S * 1000)}"))


def require_lock(leadership: Leadership) -> None:
    """Take the lock, or say who has it; that of a server which was killed here is waited for.

    Raises:
        UnavailableError: another server leads.
        DBAPIError: the database does not answer.
    """
    give_up_at = time.monotonic() + LEASE_S
    while not leadership.take_lock():
        leader = leadership.leader()
        if leader is not None and _was_killed(leader, leadership.seat) and time.monotonic() < give_up_at:
            time.sleep(_LOOKS_EVERY_S)  # PostgreSQL is about to notice
            continue
        where = f" ({leader.url}, process {leader.pid} on {leader.host})" if leader is not None and leader.url else ""
        raise UnavailableError(
            f"another server uses this database{where}",
            "stop it, have this one stand by (--standby), or give it a database of its own",
        )


def _was_killed(leader: Seat, here: Seat) -> bool:
    """Whether a server of this machine, as it runs now, is no longer there; of others that is not known."""
    same_machine = (leader.host, leader.boot_id) == (here.host, here.boot_id) and here.boot_id != ""
    return same_machine and procfs.start_ticks(leader.pid) is None
