"""Opening a database: SQLite in the state directory, or PostgreSQL by URL; brings its tables up to date."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from millpond.model.errors import NotFoundError, UnavailableError
from millpond.node.host.late_calls import called_if_late
from millpond.server.store import migrations
from millpond.server.store.connection.leadership import LEASE_S, Leadership, Seat, postgresql_options, require_lock

_CONNECTIONS: Final = 16
"""That a server may have to PostgreSQL at a time."""
_ANY_REMEDY: Final = (
    f"it has to be there, for an account that may make tables in it and have {_CONNECTIONS} connections at a time, and "
    "not be read-only; one that is damaged is restored from a backup"
)
log = logging.getLogger(__name__)

SILENT_S: Final = 5.0
"""A database that takes longer to open is named in the log."""
LOCKED_WITHIN_S: Final = 10.0
"""How long a statement waits for a lock: longer than a leader that stands still may hold one."""
LONGEST_PATH: Final = 480
"""Bytes of the path of a SQLite file, which takes 512 with the ends of the files beside it."""
_SQLITE: Final = "sqlite:///"
_DAMAGED: Final = "one that is damaged is restored from a backup (pond restore)"
_FULL: Final = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")
"""What SQLite says where it has no room; the latter of the file beside the database that its connections share."""


class _Case(NamedTuple):
    """A refusal of PostgreSQL: ``codes`` begin those of a statement; ``texts`` are in what a refused connection says.

    Such a text is in the language of the server's ``lc_messages``; in another one it gets the remedy of all. Codes:
    PostgreSQL, appendix A.
    """

    codes: tuple[str, ...]
    texts: tuple[str, ...]
    remedy: str


_CASES: Final = (
    _Case(
        ("28P01",),
        ("password authentication failed", "no password supplied"),
        "write the password of this account into ~/.pgpass of the server's account: HOST:PORT:DATABASE:USER:PASSWORD",
    ),
    _Case(
        ("53300",),
        ("too many connections", "too many clients", "remaining connection slots"),
        f"a server takes up to {_CONNECTIONS} connections: raise the limit of PostgreSQL (max_connections), of the "
        "database or of the account, or end other programs that are connected",
    ),
    _Case(
        ("28",),
        ('role "', "no pg_hba.conf entry", "authentication failed"),
        "name another account in --store, or have PostgreSQL let this one in: CREATE ROLE … LOGIN, and pg_hba.conf",
    ),
    _Case(
        ("42501",),
        ("permission denied",),
        "make the account the owner of the database, or grant it CONNECT on that and CREATE on its schema public",
    ),
    _Case(
        ("25006",),
        ("read-only", "session is not read-write"),
        "name the primary in --store: a standby takes no changes; nor does what has default_transaction_read_only",
    ),
    _Case(("57P03",), ("the database system is",), "wait until PostgreSQL has started, then start again"),
    _Case(("53100",), ("No space left on device",), "make room on the disk of PostgreSQL, then start again"),
    _Case(("XX001", "XX002"), (), "the database is damaged: restore it from a backup"),
    _Case(
        ("3D000",),
        ('database "',),
        "create it (CREATE DATABASE … OWNER …), or name another in --store",
    ),
    _Case(
        ("08",),
        ("Connection refused", "failed to resolve host", "No such file or directory", "timeout expired", "No route"),
        "check host and port in --store, and that PostgreSQL runs there, listens, and can be reached from here",
    ),
)


def postgresql_remedy(cause: BaseException | None) -> str:
    """What helps against an error of psycopg; the first of the cases above that fits."""
    code, text = getattr(cause, "sqlstate", None) or "", str(cause)
    for case in _CASES:
        if code.startswith(case.codes) if code else any(each in text for each in case.texts):
            return case.remedy
    return _ANY_REMEDY


def sqlite_url(path: Path) -> str:
    """URL of a SQLite file, which is created readable by its owner alone when it is not there.

    Raises:
        UnavailableError: it cannot be created, or SQLite could not open it, or write beside it.
    """
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise UnavailableError(
            f"{path} is too long for SQLite, which takes {LONGEST_PATH} bytes at most", "choose another state directory"
        )
    if path.parent.is_dir() and not os.access(path.parent, os.W_OK | os.X_OK):
        raise UnavailableError(
            f"cannot write to {path.parent}, where SQLite keeps more files", "choose another state directory"
        )
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise UnavailableError(f"cannot write {path} ({error.strerror})", "choose another state directory") from error
    return f"{_SQLITE}{path}"


def claim(url: str, seat: Seat) -> Leadership | None:
    """What a server has to hold to write to a database that others can reach; None where a file lock does that.

    Raises:
        UnavailableError: the URL is none, or there is no driver for it.
    """
    with _explained(url):
        is_shared = _parsed(url).get_backend_name() == "postgresql"
        return Leadership(url, seat) if is_shared else None


def connect(url: str, leadership: Leadership | None) -> sa.Engine:
    """An engine on an up-to-date database.

    Args:
        leadership: as ``claim`` gives it; from here on this server leads.

    Raises:
        UnavailableError: it cannot be reached, or was written by a newer Millpond, or cannot be upgraded.
    """
    with _explained(url), _said_while_silent(url):
        engine = _engine(_parsed(url), _set_up_sqlite if leadership is None else _set_up_postgresql)
        if leadership is not None:
            require_lock(leadership)  # before anything is changed under another server's feet
        if not _is_current(engine):
            from millpond.server.store.connection.upgrades import bring_up_to_date  # alembic is a third of a start

            bring_up_to_date(engine, lambda path: _engine(_parsed(f"{_SQLITE}{path}")))
        if leadership is not None:
            leadership.begin(engine)
    return engine


def connect_to_read(url: str, leadership: Leadership | None) -> sa.Engine:
    """An engine that changes nothing, on a database of this version that no server uses.

    Args:
        leadership: as ``claim`` gives it, whose lock is held from here on; no server is replaced by it.

    Raises:
        UnavailableError: it cannot be reached, or another version wrote it.
        NotFoundError: nothing was ever stored.
    """
    with _explained(url), _said_while_silent(url):
        parsed = _parsed(url)
        if leadership is None:
            file = f"file:{quote(str(parsed.database))}"
            engine = sa.create_engine(parsed.set(database=file, query={"mode": "ro", "uri": "true"}))
        else:
            engine = _postgresql_to_read(parsed)
            require_lock(leadership)
        with engine.connect() as connection:
            found = _revisions(connection) if sa.inspect(connection).has_table("alembic_version") else ()
    if not found:
        raise NotFoundError("no server has started on the database yet", "name another with --store")
    if found != [migrations.newest_revision()]:
        raise UnavailableError(
            f"the database is of another version of Millpond: it is at {found[0]!r}, this version at "
            f"{migrations.newest_revision()!r}",
            "use the version that wrote it; one that is older is upgraded where a server of this version starts on it",
        )
    return engine


def require_readable_postgresql(url: str) -> None:
    """Refuse a PostgreSQL database from which this version could not go on; nothing is changed in it.

    Raises:
        UnavailableError: it cannot be reached, or was written by a version of which this one cannot read the state.
    """
    from millpond.server.store.connection.upgrades import require_readable

    with _explained(url):
        engine = _postgresql_to_read(_parsed(url))
        try:
            with engine.connect() as connection:
                require_readable(connection)
        finally:
            engine.dispose()


def password_notes(url: str) -> list[str]:
    """What the operator should know of a password in the URL of a database: other accounts read command lines."""
    parsed = sa.make_url(url) if url else None
    if parsed is None or not (parsed.password or "password" in parsed.query):
        return []
    seen = "warning: other accounts of this machine see the password in --store (ps)"
    return [f"{seen}; write it into ~/.pgpass of the server's account instead: HOST:PORT:DATABASE:USER:PASSWORD"]


def without_password(url: str) -> str:
    """A valid URL as it may be kept: the driver finds the password of PostgreSQL in ``~/.pgpass``."""
    if url.startswith(_SQLITE):
        return url
    found = sa.make_url(url).difference_update_query(["password"])
    kept = sa.URL.create(found.drivername, found.username, None, found.host, found.port, found.database, found.query)
    return kept.render_as_string(hide_password=False)


def remedy(url: str, cause: BaseException | None) -> str:
    """What helps where a database cannot be read or written; ``url``: empty for SQLite."""
    if url.startswith("postgresql"):
        return postgresql_remedy(cause)
    if getattr(cause, "sqlite_errorname", "") in _FULL:
        return "the disk is full: make room there, then start again"
    return f"check that it is there and whole; {_DAMAGED}"


@contextlib.contextmanager
def _explained(url: str) -> Iterator[None]:
    """Whatever goes wrong as an error for people, who see the URL without its password."""
    shown = "the database"
    try:
        shown = _parsed(url).render_as_string(hide_password=True)
        yield
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        hint = "use sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME with the driver installed"
        raise UnavailableError(f"{shown} cannot be used ({error})", hint) from error
    except (DBAPIError, UnicodeDecodeError) as error:  # the latter: of a table that a damaged file names
        cause = getattr(error, "orig", error)
        raise UnavailableError(f"{shown} cannot be opened ({cause})", remedy(url, cause)) from error


def _said_while_silent(url: str) -> contextlib.AbstractContextManager[None]:
    """Whoever waits for the start reads in the log that it waits for the database, which may answer much later."""
    shown = _parsed(url).render_as_string(hide_password=True)
    said = "the start waits for %s, which has not been opened within %.0f s"
    return called_if_late(SILENT_S, lambda: log.warning(said, shown, SILENT_S))


def _parsed(url: str) -> sa.URL:
    """A URL; that of a SQLite file is its path as it is, in which ``?`` begins no parameters."""
    if url.startswith(_SQLITE):
        return sa.URL.create("sqlite", database=url.removeprefix(_SQLITE))
    return sa.make_url(url)


def _is_current(engine: sa.Engine) -> bool:
    """Whether nothing has to be done: the usual case, in which alembic need not even be imported."""
    try:
        with engine.connect() as connection:
            return _revisions(connection) == [migrations.newest_revision()]
    except DBAPIError:  # no tables yet, or no database: the migrations report it
        return False


def _revisions(connection: sa.Connection) -> Sequence[str]:
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalars().all()


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    """Readers never block the writer; a commit is on disk when it returns."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _set_up_postgresql(connection: Any, _record: Any) -> None:
    """A transaction in which a server stands still must not keep the next leader from beginning, nor another program's
    lock of a table keep requests without an answer."""
    cursor = connection.cursor()
    cursor.execute(f"SET idle_in_transaction_session_timeout = {int(LEASE_S * 1000)}")
    cursor.execute(f"SET lock_timeout = {int(LOCKED_WITHIN_S * 1000)}")
    cursor.close()
    connection.commit()


def _postgresql_to_read(url: sa.URL) -> sa.Engine:
    return _engine(url, _set_up_postgresql).execution_options(postgresql_readonly=True)


def _engine(url: sa.URL, set_up: Callable[[Any, Any], None] = _set_up_sqlite) -> sa.Engine:
    options = {} if url.get_backend_name() == "sqlite" else postgresql_options(url)
    engine = sa.create_engine(url, **options)
    sa.event.listen(engine, "connect", set_up)
    return engine
